"""`modelmill` without Prefect; everything else is the real command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SHOWN = {"sweep", "resume", "retry"}
"""The commands that Prefect shows; the others start without what these import."""


def without_prefect(words: Sequence[str]) -> None:
    """Have the command shown nowhere; to be called before the commands import what runs it."""
    if not SHOWN & set(words):
        return
    import flows.run.run

    class PlainRun(flows.run.run.Run):
        @contextmanager
        def _shown(self, *_where: object) -> Iterator[None]:
            yield

    flows.run.run.Run = PlainRun  # type: ignore[misc]


if __name__ == "__main__":
    without_prefect(sys.argv[1:])
    from flows.cli.main import entry

    entry()
