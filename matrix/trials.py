"""The words of a tuning, as the state stores them."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What the data say of a trial."""

    BETTER = "better"
    NO_DIFFERENCE = "no difference"
    WORSE = "worse"
    TOO_NOISY = "too noisy"
    INACCURATE = "inaccurate"
    BUILD_FAILED = "build failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    SAME = "same"
    SKIPPED = "skipped"


OF_ARTIFACTS = (
    Verdict.BETTER, Verdict.NO_DIFFERENCE, Verdict.WORSE, Verdict.TOO_NOISY, Verdict.INACCURATE,
    Verdict.SAME,
)  # fmt: skip
"""Verdicts on something that could be built."""


class Phase(StrEnum):
    """What a trial is for."""

    BASELINE = "baseline"
    SINGLE = "single"
    """One hypothesis alone, against the baseline."""
    COMBINATION = "combination"
    """Of hypotheses that were confirmed."""


class TuningStatus(StrEnum):
    """How far the tuning of one model has come."""

    PLANNED = "planned"
    RUNNING = "running"
    """Or its process was killed."""
    DONE = "done"
    OUT_OF_TIME = "out of time"
    """The budget was used up; what was confirmed by then stands."""
    FAILED = "failed"
    """There is no baseline to compare with."""


OVER = (TuningStatus.DONE, TuningStatus.OUT_OF_TIME, TuningStatus.FAILED)


class SessionKind(StrEnum):
    """What a session of a trial is for."""

    SCREEN = "screen"
    """Short: whether it is worth more."""
    COMPARISON = "comparison"
    CONFIRMATION = "confirmation"
    """Fresh, with champion and baseline swapped."""
