"""How a measurement is made, as far as the user decides it."""

from __future__ import annotations

from dataclasses import dataclass

from matrix.errors import UsageError

MOST_ITERATIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class Protocol:
    """Two measurements can be compared only if they were made by the same protocol."""

    warmup: int = 20
    """Runs of each session that are not counted."""
    iterations: int = 500
    """Counted runs of each session."""
    sessions: int = 3
    """Each begins with a new process."""
    threads: int = 0
    """Of the runtime; 0: as many as it likes."""

    def check(self) -> None:
        """Raise `UsageError` unless it can be followed."""
        for name, least, most in (
            ("warmup", 0, MOST_ITERATIONS),
            ("iterations", 1, MOST_ITERATIONS),
            ("sessions", 1, 1000),
            ("threads", 0, 4096),
        ):
            if not least <= getattr(self, name) <= most:
                raise UsageError(
                    f"--{name}: {getattr(self, name)} is out of range", hint=f"{least} to {most}"
                )
