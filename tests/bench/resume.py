"""How long it takes to learn that everything is done, with a state that knows nothing.

    python -m tests.bench.resume [CELLS ...]       default: 10000 100000

The feed is filled with manifests; then `begin` plans, records and seeds them into an empty state.
The goals: 10,000 published cells under 3 s, 100,000 under 30 s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from feed.directory import DirectoryFeed
from feed.interface import write_description
from feed.layout import Layout, Manifest
from flows.plan.planning import plan_of
from flows.settings.resolution import resolve
from flows.stop import Stop
from flows.sweep.lifecycle import Sweep
from matrix.digest import FileEntry, tree_digest
from matrix.model import Plan
from state.state import open_state
from tests.bench.command import LABELS, table, write_catalog
from tests.fakes.feed import EPOCH

GOALS = {10_000: 3.0, 100_000: 30.0}


def fill(root: Path, plan: Plan) -> int:
    """Publish every version of a plan, without its bytes."""
    DirectoryFeed(root).preflight()
    layout = Layout(root)
    count = 0
    for count, item in enumerate(plan.packages(), 1):
        files = tuple(FileEntry(f"file-{n}.bin", n, f"{count:032x}{n:032x}") for n in range(4))
        manifest = Manifest(
            item.package,
            item.version,
            write_description(tree_digest(files), item.id),
            EPOCH,
            files,
        )
        path = layout.manifest(item.package, item.version)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(manifest.to_json())
    return count


def run(cells: int) -> tuple[float, float, int]:
    """Seconds to plan, seconds to record and seed, and what there was to seed."""
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name)
        catalog = write_catalog(folder, cells // LABELS)
        settings = resolve({"stamp": "20260609"}, {}, folder)
        began = time.perf_counter()
        plan = plan_of(settings, catalog, date(2026, 6, 9))
        planned = time.perf_counter() - began
        fill(folder / "feed", plan)
        began = time.perf_counter()
        with open_state(folder / "state.db") as state:
            feed = DirectoryFeed(folder / "feed")
            begun = Sweep(plan, settings, state, feed, Stop())
            begun.begin()
            if begun.has_work():
                raise SystemExit("something was left to do")
        return planned, time.perf_counter() - began, begun.seeded.new


def main(sizes: list[int]) -> None:
    """Print a row per size."""
    rows: list[tuple[object, ...]] = [("cells", "versions", "plan s", "seed s", "of goal")]
    for cells in sizes:
        planned, seeded, versions = run(cells)
        share = (planned + seeded) / GOALS[cells] if cells in GOALS else float("nan")
        rows.append((cells, versions, f"{planned:.2f}", f"{seeded:.2f}", f"{share:.2f}"))
    table(rows)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or list(GOALS))
