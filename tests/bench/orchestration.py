"""What a cell costs when building it costs nothing, from a few to very many cells.

    python -m tests.bench.orchestration [CELLS ...]       default: 200 2000 20000

The whole command with the do-nothing engine: state, leases, host round trips, store, verification,
publishing with read-back, Prefect's task runs. The start of the command (Prefect's server, imports)
is measured with one model and taken off. The goal: under 15 ms a cell, no growth, flat memory.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.bench.command import LABELS, modelmill, table, write_catalog

GOAL_MS = 15.0


def run(cells: int) -> tuple[float, int]:
    """Seconds and peak memory of a sweep over so many cells."""
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name)
        catalog = write_catalog(folder, max(1, cells // LABELS))
        measured = modelmill(folder, "sweep", catalog, "--engine", "nothing", "--jobs", "2")
    return measured.seconds, measured.peak


def main(sizes: list[int]) -> None:
    """Print a row per size."""
    start, base = run(LABELS)
    rows: list[tuple[object, ...]] = [("cells", "seconds", "ms/cell", "of goal", "MB over start")]
    for cells in sizes:
        seconds, peak = run(cells)
        each = (seconds - start) / (cells - LABELS) * 1000
        grown = (peak - base) / 1e6
        rows.append(
            (cells, f"{seconds:.1f}", f"{each:.1f}", f"{each / GOAL_MS:.2f}", f"{grown:.0f}")
        )
    print(f"start of the command with {LABELS} cells: {start:.1f} s, {base / 1e6:.0f} MB")
    table(rows)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [200, 2_000, 20_000])
