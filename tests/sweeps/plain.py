"""`modelmill` without Prefect; everything else is the real command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import flows.sweep.run


class PlainRun(flows.sweep.run.Run):
    """Shown nowhere."""

    @contextmanager
    def _shown(self, *_where: object) -> Iterator[None]:
        yield


if __name__ == "__main__":
    # Before the commands import it by name.
    flows.sweep.run.Run = PlainRun  # type: ignore[misc]
    from flows.cli.main import entry

    entry()
