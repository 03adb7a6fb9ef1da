"""Failed stage runs of a model: the same run fails in the same way for another target.

The key covers everything that can make a difference, so a broken export is not tried once for
each of eight targets. Failures are forgotten with the model and never cached.
"""

from __future__ import annotations

from collections import defaultdict

from matrix.status import FailureClass
from workers.errors import BuildFailed

FLAKY = frozenset({FailureClass.CRASH, FailureClass.MEMORY, FailureClass.UNKNOWN})
"""Classes that may be accidental: they count from the second time on."""


class KnownFailures:
    """Failures of one model by stage key."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[str, BuildFailed]]] = defaultdict(list)

    def check(self, key: str) -> None:
        """Raise the known failure of this key, if there is one."""
        if not self._seen[key]:
            return
        cell_id, error = self._seen[key][-1]
        if error.failure in FLAKY and len(self._seen[key]) < 2:
            return
        again = BuildFailed(
            error.failure,
            error.stage,
            f"{error.reason} (the same run failed for {cell_id})",
            hint=error.hint,
            exit_code=error.process_exit,
            log_tail=error.log_tail,
        )
        again.member = error.member
        raise again

    def note(self, key: str, cell_id: str, error: BuildFailed) -> None:
        """Remember a failure unless it can be retried."""
        if not error.retryable:
            self._seen[key].append((cell_id, error))
