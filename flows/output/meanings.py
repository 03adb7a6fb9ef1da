"""What statuses, failure classes and exit codes mean, in a line each, and how statuses look.

The report, the reference pages and their tests are made from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from matrix.errors import Exit
from matrix.status import FailureClass, Status


class Tone(StrEnum):
    """How a status is coloured. A glyph and a word always go with the colour."""

    GOOD = "good"
    SAME = "same"
    BUSY = "busy"
    IDLE = "idle"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Look:
    """A status for people."""

    tone: Tone
    glyph: str
    meaning: str


LOOKS: Mapping[Status, Look] = {
    Status.PLANNED: Look(Tone.IDLE, "·", "to be built"),
    Status.BUILDING: Look(Tone.BUSY, "▸", "its stages run or are found in the store"),
    Status.BUILT: Look(Tone.BUSY, "▪", "all files are there, not yet verified"),
    Status.VERIFYING: Look(Tone.BUSY, "◇", "verification runs"),
    Status.VERIFIED: Look(Tone.GOOD, "◆", "passed verification; final if nothing is published"),
    Status.PUBLISHING: Look(Tone.BUSY, "↑", "being sent to the feed or read back"),
    Status.PUBLISHED: Look(Tone.GOOD, "✓", "in the feed, read back and equal"),
    Status.UNCHANGED: Look(
        Tone.SAME, "=", "equal to its newest published version; no new version was made"
    ),
    Status.BUILD_FAILED: Look(Tone.BAD, "✕", "a stage failed, or its process died"),
    Status.BUILD_TIMEOUT: Look(Tone.BAD, "◷", "a stage took longer than its limit"),
    Status.VERIFY_FAILED: Look(
        Tone.BAD, "≠", "a rung of verification failed; the package is kept, not published"
    ),
    Status.PUBLISH_FAILED: Look(Tone.BAD, "⤒", "built and verified, but the feed did not take it"),
    Status.CONFLICT: Look(
        Tone.BAD, "‼", "the feed has other content under that version; the local package is kept"
    ),
    Status.UNSUPPORTED: Look(Tone.WARN, "∅", "cannot be built here or for this target at all"),
    Status.SKIPPED: Look(Tone.IDLE, "–", "left out on purpose, for the reason in the catalog"),
    Status.CANCELLED: Look(Tone.IDLE, "◌", "interrupted; a resume continues it"),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A failure class for people."""

    meaning: str
    next_step: str


CAUSES: Mapping[FailureClass, Cause] = {
    FailureClass.EXPORT: Cause(
        "the model could not be exported to ONNX",
        "read the log; check task, model type and the exporter's versions",
    ),
    FailureClass.OPTIMIZE: Cause(
        "graph optimization failed", "read the log; try another opset for this model"
    ),
    FailureClass.QUANTIZE: Cause(
        "quantization failed", "read the log; set another precision for this cell"
    ),
    FailureClass.COMPILE: Cause(
        "compilation for the device failed", "check driver and execution provider versions"
    ),
    FailureClass.VERIFY: Cause(
        "the artifact did not pass verification",
        "look at the evidence and the kept package; set another precision or skip the cell",
    ),
    FailureClass.PUBLISH: Cause(
        "the feed refused the package, or holds other content under its version",
        "compare with modelmill feed show PACKAGE VERSION; sweep under another --stamp",
    ),
    FailureClass.TIMEOUT: Cause(
        "a stage or publish took longer than its limit",
        "raise --timeout or --publish-timeout, then modelmill retry --class TIMEOUT",
    ),
    FailureClass.MEMORY: Cause(
        "a process went over its memory ceiling or was killed for memory",
        "raise --memory, lower --jobs or take a larger machine; modelmill retry --class MEMORY",
    ),
    FailureClass.DISK: Cause(
        "the disk, or the disk budget, is full or broken",
        "free space or raise --disk-budget, then modelmill retry --class DISK",
    ),
    FailureClass.NETWORK: Cause(
        "a hub or the feed stayed unreachable for all retries",
        "check the connection, then modelmill retry --class NETWORK",
    ),
    FailureClass.AUTH: Cause(
        "credentials are missing or refused", "log in again, then modelmill resume"
    ),
    FailureClass.CRASH: Cause(
        "the engine's process died in native code",
        "read the log; modelmill retry --class CRASH shows whether it happens again",
    ),
    FailureClass.UNSUPPORTED: Cause(
        "this engine, target or machine cannot build it",
        "skip the cell in the catalog, or use the engine or machine that can",
    ),
    FailureClass.UNKNOWN: Cause("none of the above", "read the log"),
}

EXITS: Mapping[int, str] = {
    Exit.OK: "every cell is published, unchanged or skipped on purpose",
    Exit.CELLS_FAILED: "some cells failed",
    Exit.USAGE: "wrong usage or configuration",
    Exit.HOST_CANNOT_PUBLISH: "this machine cannot publish (credentials)",
    Exit.NOTHING_SELECTED: "the selection matches no cell",
    Exit.UNUSABLE: "the feed or the state is unusable",
    Exit.REJECTED: "a review rejects an onboarding folder",
    Exit.INTERRUPTED: "interrupted; `modelmill resume` continues",
}
