"""What can go wrong while a model is built, each with its class and the next step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from machine.waits import WaitCancelled, WaitedTooLong
from matrix.errors import Exit, MillError
from matrix.status import FailureClass


def failure_of(*names: str) -> FailureClass:
    """The class that the first of these names stands for; a stage is named like its class."""
    known = (one.upper() for one in names if one.upper() in FailureClass.__members__)
    return FailureClass(next(known, FailureClass.UNKNOWN))


class BuildFailed(MillError):
    """One cell could not be built; the facts that the state keeps of it."""

    exit_code = Exit.CELLS_FAILED

    def __init__(
        self,
        failure: FailureClass,
        stage: str,
        message: str,
        *,
        hint: str = "",
        retryable: bool = False,
        exit_code: int | None = None,
        log_tail: str = "",
    ) -> None:
        super().__init__(f"{stage}: {message}", hint=hint)
        self.failure = failure
        self.stage = stage
        self.reason = message
        self.retryable = retryable or failure.retries_itself
        self.process_exit = exit_code
        """Exit code of the engine host when it died (negative: the signal), else None."""
        self.log_tail = log_tail
        self.member = ""
        """Which of the models that share a context has failed, where only that one has."""


class Cancelled(MillError):
    """The sweep was asked to stop; nothing is wrong with the cell."""

    exit_code = Exit.INTERRUPTED


@contextmanager
def wait_failures(stage: str) -> Iterator[None]:
    """What it means for a cell that a wait was given up."""
    try:
        yield
    except WaitCancelled as error:
        raise Cancelled(error.message) from error
    except WaitedTooLong as error:
        hint = f"{error.hint}, then: modelmill retry --class TIMEOUT"
        raise BuildFailed(FailureClass.TIMEOUT, stage, error.message, hint=hint) from error


class EngineNotFound(MillError):
    """No engine of that name is installed."""


class StoreError(MillError):
    """The store cannot be used at all, or a folder is not one of ours."""

    exit_code = Exit.UNUSABLE


class CorruptBlob(StoreError):
    """Bytes in the store are not what their digest says; they have been removed."""
