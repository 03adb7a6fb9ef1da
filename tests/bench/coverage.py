"""Builds and verifies the whole zoo with both engines, and writes the results to docs/zoo.md.

    python -m tests.bench.coverage                        sweeps the zoo: two hours
    python -m tests.bench.coverage LOG... --winml LOG...  reads the output of such sweeps: later
                                                          logs win, and cells that are in no log
                                                          keep the page's result

The NPU is Qualcomm's emulation on Linux (extra qnn): it shows what is computed, not how fast. The
winml engine needs its environment (`modelmill engine install winml`).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from matrix.catalog import load_catalog

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
CPU, NPU, WINML = "mlas_cpu", "qnn_npu", "winml"
COLUMNS = {CPU: "CPU", NPU: "NPU, w8a16", WINML: "CPU, [winml engine](winml.md)"}
GOOD = ("published", "unchanged")
LINE = re.compile(r"\[ *\d+/\d+\] (\w+) +(zoo/[^:\s]+):(\S+)@(\w+) +(.*)")
HEAD = """# The zoo: every pair that is said to build

<!-- made by `python -m tests.bench.coverage` -->

The packaged catalog `zoo` has a tiny model with seeded random weights for every pair of
architecture and task that [coverage](coverage.md) calls `builds`. The table shows the result of
building and verifying each model for ONNX Runtime's CPU provider and, in w8a16, for Qualcomm's NPU,
which is emulated.

- `verified`: every rung of [verification](verification.md) holds.
- `cosine 0.93` and the like: these random weights lose too much accuracy in w8a16. A trained model
  of the same architecture is easier to quantize than a random one of two layers.
- `does not load`: the emulation cannot open or run the model.
- `verify failed`: another rung of verification does not hold.
- `not run`: the cell has not been built yet.

`modelmill sweep zoo` builds all of them. The tests build a sample, and with `-m slow` all of them.

"""

Results = dict[tuple[str, str, str], tuple[str, str]]


def sweep(*options: str) -> list[str]:
    """The output of a sweep of the zoo."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "modelmill", "sweep", "zoo", "--home", folder]
        done = subprocess.run(
            [*command, *options, "--jobs", "2"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    return done.stdout.splitlines()


def results(lines: Iterable[str], column: str = "") -> Results:
    """Architecture, task and column -> status and message; by default, a target is a column."""
    found: Results = {}
    for line in lines:
        if match := LINE.match(line):
            status, model, task, target, message = match.groups()
            found[model.removeprefix("zoo/"), task, column or target] = status, message
    return found


def kept() -> dict[tuple[str, str, str], str]:
    """Architecture, task and column -> the result on the page."""
    lines = PAGE.read_text("utf-8").splitlines() if PAGE.is_file() else []
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {
        (row[0], row[1], column): said
        for row in rows[1:]
        for column, said in zip(COLUMNS, row[2:], strict=False)
    }


def cell(result: tuple[str, str]) -> str:
    """The entry of the table for one cell."""
    status, message = result
    if status in GOOD:
        return "verified"
    if (cosine := re.search(r"cosine (-?\d[\d.]*)", message)) and "parity failed" in message:
        return f"cosine {float(cosine[1]):.2f}"
    if "loads failed" in message:
        return "does not load"
    return status.replace("_", " ")


def page(found: Results) -> str:
    """The whole page; a column without a result is left out."""
    models = load_catalog("zoo", base=Path.cwd()).models
    told = kept() | {key: cell(result) for key, result in found.items()}
    columns = [column for column in COLUMNS if any(key[2] == column for key in told)]
    rows = []
    for model in models:
        keys = [(model.source.ref, model.task, column) for column in columns]
        rows.append((model.source.ref, model.task, *(told.get(key, "not run") for key in keys)))
    good = {
        column: sum(row[place] == "verified" for row in rows)
        for place, column in enumerate(columns, 2)
    }
    counts = [f"- {COLUMNS[column]}: {number} of {len(rows)}" for column, number in good.items()]
    heads = ["architecture", "task", *(COLUMNS[column] for column in columns)]
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    table = [lines[0], "|" + "---|" * len(heads), *lines[1:]]
    return "\n".join([HEAD + "Verified:\n", *counts, "", *table, ""])


def lines_of(logs: Iterable[str]) -> list[str]:
    """The lines of all logs."""
    return [line for log in logs for line in Path(log).read_text("utf-8").splitlines()]


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", metavar="LOG", help="output of sweeps")
    parser.add_argument("--winml", nargs="+", metavar="LOG", default=[], help="of the winml engine")
    given = parser.parse_args()
    ours, theirs = lines_of(given.logs), lines_of(given.winml)
    if not ours and not theirs:
        ours = sweep("--target", f"{CPU},{NPU}")
        theirs = sweep("--target", CPU, "--engine", "winml")
    found = results(ours) | results(theirs, WINML)
    PAGE.write_text(page(found), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
