"""What can go wrong while a model is built, each with its class and the next step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from machine.waits import WaitedTooLong
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

    def told_as(
        self, message: str, failure: FailureClass | None = None, hint: str = ""
    ) -> BuildFailed:
        """The same failure in other words, and as another class if one is given."""
        told = BuildFailed(
            failure or self.failure,
            self.stage,
            message,
            hint=hint or self.hint,
            exit_code=self.process_exit,
            log_tail=self.log_tail,
        )
        told.member = self.member
        return told


FLAKY = frozenset({FailureClass.CRASH, FailureClass.MEMORY, FailureClass.UNKNOWN})
"""Classes that may be accidental: they count from the second time on."""


class KnownFailures:
    """Failed stage runs of a model, by key: the same run fails in the same way for another target.

    The key covers everything that can make a difference, so a broken export is not tried once for
    each of eight targets. Failures are forgotten with the model and never cached.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[str, BuildFailed]]] = defaultdict(list)

    def check(self, key: str) -> None:
        """Raise the known failure of this key, if there is one."""
        if not self._seen[key]:
            return
        cell_id, error = self._seen[key][-1]
        if error.failure not in FLAKY or len(self._seen[key]) > 1:
            raise error.told_as(f"{error.reason} (the same run failed for {cell_id})")

    def note(self, key: str, cell_id: str, error: BuildFailed) -> None:
        """Remember a failure unless it can be retried."""
        if not error.retryable:
            self._seen[key].append((cell_id, error))


@contextmanager
def wait_failures(stage: str) -> Iterator[None]:
    """What it means for a cell that a wait lasted too long."""
    try:
        yield
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
