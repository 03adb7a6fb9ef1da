"""One module per command: `add` for its arguments, and `run`, which returns the exit code, if any.

A module is imported when its command is parsed, so what only `run` needs is imported in `run`: a
help text loads no feed and no database.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "plan": "print the matrix, the effective settings and an estimate",
    "coverage": "say which models of a catalog build, and what the others need",
    "sweep": "build, verify and publish every selected cell",
    "resume": "continue an interrupted sweep",
    "retry": "try failed cells of a sweep again",
    "status": "show the status of every cell, with next steps for failures",
    "explain": "say why each stage of a cell ran or was reused",
    "rebuild": "build a published package again and compare the bytes",
    "report": "write a sweep as one HTML file",
    "diff": "show what differs between two sweeps, and why",
    "feed": "list a feed, pull packages, promote versions",
    "store": "show, trim or empty the local content store",
    "state": "remove old sweeps from the state",
    "engine": "list engines, and create the environments of those that need their own",
    "compile": "compile ahead of time for a device, so that models open at once",
    "bench": "measure how fast models run here, and whether one is faster than another",
    "trace": "show where a model spends its time, operator by operator",
    "verify": "verify a package folder, a published version or a cell",
    "tune": "find the fastest build of a model on a device, or grade recorded sessions",
    "onboard": "turn a model into a catalog entry, with proof that it builds and runs right",
    "review": "check the proof of an onboarding on this machine",
    "knowledge": "show what is known about targets and models, with the evidence",
    "doctor": "say what works on this machine, and what to do about the rest",
    "completion": "make a shell complete commands and flags",
    "worker": "make this machine part of a fleet",
    "deploy": "set up a fleet on its Prefect server",
    "cancel": "stop a sweep, local or on a fleet; a resume continues it",
}
"""Every command in the order of the help, with its line there."""
