"""One module per command: `add` for its arguments, and `run`, which returns the exit code.

A module is imported when its command is parsed, so what only `run` needs is imported in `run`: a
help text loads no feed and no database.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "plan": "print the matrix and the effective settings",
    "coverage": "which models of a catalog build, and what the others need",
    "sweep": "build, verify and publish every selected cell",
    "resume": "go on with an interrupted sweep",
    "retry": "take failed cells of a sweep up again",
    "status": "the status of every cell, with next steps for failures",
    "explain": "why each stage of a cell ran or was reused",
    "rebuild": "build a published package again and compare the bytes",
    "report": "a sweep as one HTML file",
    "diff": "what differs between two sweeps, and why",
    "feed": "look into a feed, pull packages, promote versions",
    "store": "the local content store",
    "engine": "list engines; make an engine's own environment",
    "compile": "compile ahead of time for a device, so that models open at once",
    "bench": "how fast models run here, and whether one is faster than another",
    "trace": "where the time of a model goes, operator by operator",
    "verify": "verify a package folder, a published version or a cell",
    "tune": "find the fastest build of a model on a device, or grade recorded sessions",
    "onboard": "make a model a catalog entry, with proof that it builds, runs and computes right",
    "review": "check the proof of an onboarding on this machine",
    "knowledge": "what tuning and onboarding have found out, with the evidence",
    "doctor": "what works on this machine and what to do about the rest",
    "completion": "let a shell complete commands and flags",
    "worker": "make this machine part of a fleet",
    "deploy": "set a fleet up on its Prefect server",
    "cancel": "stop a sweep, local or of a fleet; a resume goes on",
}
"""Every command in the order of the help, with its line there."""
