"""A second machine without anything but the cache of the first.

    python -m tests.bench.cache [CATALOG [FLAG ...]]       default: demo, all of its cells

What a machine does for itself in any case is the start of the engine and the verification of each
package. So tiny models, as those of the demo are, gain least.

What counts is processor time, of the command and of all its children. The goal: with the cache, the
second machine takes at most 25 % of the first one's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from state.state import open_state
from tests.bench.command import modelmill, table


def main(catalog: str, *flags: str) -> None:
    """Sweep on two machines, one after the other."""
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name)
        first = _sweep(folder, catalog, "first", "--cache", "cache", *flags)
        second = _sweep(folder, catalog, "second", "--cache", "cache", *flags)
    rows: list[tuple[object, ...]] = [("", "processor s", "stages run", "of the first")]
    for label, (seconds, ran) in (("first", first), ("second", second)):
        rows.append((label, f"{seconds:.1f}", ran, f"{seconds / first[0]:.3f}"))
    table(rows)


def _sweep(folder: Path, catalog: str, home: str, *flags: str) -> tuple[float, int]:
    before = os.times()
    modelmill(folder, "sweep", catalog, "--stamp", "1", "--home", home, *flags)
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    with open_state(folder / home / "state.db") as state:
        info = state.find_sweep("1")
        assert info is not None
        return spent, sum(not run.reused for run in state.stage_runs(info.id))


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["demo"]))
