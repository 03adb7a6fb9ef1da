"""Stage runs that failed for good: the same run asked for by another target fails the same way.

The key holds everything that can make a difference, so trying a broken export once for each of
eight targets only costs time. Nothing is kept beyond one model: a failure is never cached.
"""

from __future__ import annotations

from matrix.status import FailureClass
from workers.errors import BuildFailed

FLAKY = frozenset({FailureClass.CRASH, FailureClass.MEMORY, FailureClass.UNKNOWN})
"""May be the moment's fault; believed the second time."""


class KnownFailures:
    """Failures of one model by stage key."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, BuildFailed]] = {}
        self._times: dict[str, int] = {}

    def check(self, key: str) -> None:
        """Raise what is known of this key, if it is known for good."""
        if key not in self._seen:
            return
        cell_id, error = self._seen[key]
        if error.failure in FLAKY and self._times[key] < 2:
            return
        raise BuildFailed(
            error.failure,
            error.stage,
            f"{error.reason} (the same run failed for {cell_id})",
            hint=error.hint,
            exit_code=error.process_exit,
            log_tail=error.log_tail,
        )

    def note(self, key: str, cell_id: str, error: BuildFailed) -> None:
        """Remember a failure, unless trying again is what it asks for."""
        if not error.retryable:
            self._seen[key] = (cell_id, error)
            self._times[key] = self._times.get(key, 0) + 1

    def forget(self) -> None:
        """Another model, or the same one asked for again."""
        self._seen.clear()
        self._times.clear()
