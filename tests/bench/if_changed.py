"""A second sweep of an unchanged catalog under a new stamp, against the first one.

    python -m tests.bench.if_changed [CATALOG]       default: demo

The goal: under 5% of the first sweep's time, nothing rebuilt. The start of the command, which is
the same for both, is shown apart.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from state.state import open_state
from tests.bench.command import modelmill, table, write_catalog
from tests.states.samples import counts


def main(catalog: str) -> None:
    """Sweep twice and compare."""
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name)
        small = write_catalog(folder, 1)
        start = modelmill(folder, "sweep", small, "--engine", "nothing", "--home", "start").seconds
        first = modelmill(folder, "sweep", catalog, "--stamp", "1").seconds
        second = modelmill(folder, "sweep", catalog, "--stamp", "2", "--if-changed").seconds
        with open_state(folder / ".modelmill" / "state.db") as state:
            info = state.find_sweep("2")
            assert info is not None
            ran = sum(not run.reused for run in state.stage_runs(info.id))
            found = {str(status): count for status, count in counts(state, info.id).items()}
    table(
        [
            ("", "seconds", "without start"),
            ("start", f"{start:.1f}", ""),
            ("first", f"{first:.1f}", f"{first - start:.1f}"),
            ("second", f"{second:.1f}", f"{max(second - start, 0):.1f}"),
            ("ratio", f"{second / first:.3f}", f"{max(second - start, 0) / (first - start):.3f}"),
        ]
    )
    print(f"stages run by the second: {ran}; {found}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "demo")
