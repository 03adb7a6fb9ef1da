"""Builds and verifies the whole zoo with both engines, and writes the results to docs/zoo.md and,
for coverage by the winml engine, to matrix/data/measured.json.

    python -m tests.bench.coverage                        sweeps the zoo: two hours
    python -m tests.bench.coverage LOG... --winml LOG...  reads the output of such sweeps: later
                                                          logs win, and cells that are in no log
                                                          keep the page's result
    python -m tests.bench.coverage --anew LOG...          the same, but they are "not run", because
                                                          the rules of verification have changed
    python -m tests.bench.coverage --registry FILE        says how much of a registry the page
                                                          shows to be verified

The NPU is Qualcomm's emulation on Linux (extra qnn): it shows what is computed, not how fast. The
winml engine needs its environment (`modelmill engine install winml`).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from matrix.catalog import load_catalog
from matrix.coverage import MEASURED, cover, heads

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
CPU, NPU, WINML = "mlas_cpu", "qnn_npu", "winml"
COLUMNS = {
    CPU: "CPU",
    NPU: "NPU, w8a16",
    f"{WINML} {CPU}": "winml engine: CPU",
    f"{WINML} {NPU}": "winml engine: NPU, w8a16",
}
GOOD = ("published", "unchanged")
LINE = re.compile(r"\[ *\d+/\d+\] (\w+) +(zoo/[^:\s]+):(\S+)@(\w+) +(.*)")
HEAD = """# The zoo: every pair that is said to build

<!-- made by `python -m tests.bench.coverage` -->

The packaged catalog `zoo` has a tiny model with seeded random weights for every pair of
architecture and task that [coverage](coverage.md) calls `builds`. The table shows the result of
building and verifying each model for ONNX Runtime's CPU provider and, in w8a16, for Qualcomm's NPU,
which is emulated.

- `verified`: every rung of [verification](verification.md) holds, on synthetic samples: a random
  model has no others.
- `12.5 dB` and the like: these random weights lose too much accuracy in w8a16, where 15 dB are
  asked. A trained model of the same architecture is easier to quantize than a random one of two
  layers.
- `samples`: the samples do not exercise these random weights, for example because all of them get
  one class.
- `does not load`: the emulation cannot open or run the model.
- `verify failed`: another rung of verification does not hold.
- `build failed`, `unsupported`: the engine cannot build it.
- `not run`: the cell has not been built since samples are judged.

The last two columns show the same models built by the [winml engine](winml.md). They were verified
before there were judged samples, by the cosine of outputs on generated values, so they show less. A
few fail there only because they are tiny: winml-cli's sample texts can be longer than their tables
of positions.

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


def results(lines: Iterable[str], engine: str = "") -> Results:
    """Architecture, task and column -> status and message."""
    found: Results = {}
    for line in lines:
        if match := LINE.match(line):
            status, model, task, target, message = match.groups()
            column = f"{engine} {target}".strip()
            found[model.removeprefix("zoo/"), task, column] = status, message
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
    ratios = re.findall(r"signal-to-noise ratio (-?\d[\d.]*) dB", message)
    if "parity failed" in message:
        return f"{min(map(float, ratios)):.1f} dB" if ratios else "parity"
    if "loads failed" in message:
        return "does not load"
    if "samples failed" in message:
        return "samples"
    return status.replace("_", " ")


def page(found: Results, *, anew: bool = False) -> str:
    """The whole page; a column without a result is left out. `anew`: earlier results of ours do not
    count."""
    models = load_catalog("zoo", base=Path.cwd()).models
    told = {key: said for key, said in kept().items() if not anew or key[2].startswith(WINML)}
    told |= {key: cell(result) for key, result in found.items()}
    columns = [column for column in COLUMNS if any(key[2] == column for key in told)]
    rows = []
    for model in models:
        keys = [(model.source.ref, model.task, column) for column in columns]
        rows.append((model.source.ref, model.task, *(told.get(key, "not run") for key in keys)))
    counts = []
    for place, column in enumerate(columns, 2):
        ran = [row[place] for row in rows if row[place] != "not run"]
        share = f"{ran.count('verified')} of {len(ran)}"
        counts.append(f"- {COLUMNS[column]}: {share}" + (" that were run" * (len(ran) < len(rows))))
    heads = ["architecture", "task", *(COLUMNS[column] for column in columns)]
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    table = [lines[0], "|" + "---|" * len(heads), *lines[1:]]
    return "\n".join([HEAD + "Verified:\n", *counts, "", *table, ""])


def built_by_winml() -> dict[str, dict[str, list[str]]]:
    """Engine, architecture, tasks: what coverage knows of an engine that has no table."""
    found: dict[str, list[str]] = {}
    for (architecture, task, column), said in kept().items():
        if (column, said) == (f"{WINML} {CPU}", "verified"):
            found.setdefault(architecture, []).append(task)
    return {WINML: found} if found else {}


def share_of(registry: str) -> str:
    """How much of a registry's pairs of architecture and task, and of its entries, is verified."""
    told, entries, pairs = kept(), Counter[str](), dict[tuple[str, str], str]()
    models = load_catalog(registry, base=Path.cwd()).models
    for model in models:
        found = cover(model, "optimum")
        if found.architecture in heads():
            pairs[found.architecture, model.task] = found.task
        for column in COLUMNS:
            entries[column] += told.get((found.architecture, found.task, column)) == "verified"
    lines = [f"{len(models)} entries; {len(pairs)} pairs have an architecture of Transformers"]
    for column, head in COLUMNS.items():
        keys = ((name, task, column) for (name, _), task in pairs.items())
        good = sum(told.get(key) == "verified" for key in keys)
        share = good / max(len(pairs), 1)
        lines.append(f"{head}: {good} pairs ({share:.0%}), {entries[column]} entries are verified")
    return "\n".join(lines)


def lines_of(logs: Iterable[str]) -> list[str]:
    """The lines of all logs."""
    return [line for log in logs for line in Path(log).read_text("utf-8").splitlines()]


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", metavar="LOG", help="output of sweeps")
    parser.add_argument("--winml", nargs="+", metavar="LOG", default=[], help="of the winml engine")
    parser.add_argument("--anew", action="store_true", help="forget the page's results of ours")
    parser.add_argument("--registry", metavar="FILE", help="a catalog or registry")
    given = parser.parse_args()
    if given.registry:
        print(share_of(given.registry))
        return
    ours, theirs = lines_of(given.logs), lines_of(given.winml)
    if not ours and not theirs:
        ours = sweep("--target", f"{CPU},{NPU}")
        theirs = sweep("--target", f"{CPU},{NPU}", "--engine", "winml")
    found = results(ours) | results(theirs, WINML)
    PAGE.write_text(page(found, anew=given.anew), encoding="utf-8", newline="\n")
    text = json.dumps(built_by_winml(), indent=1, sort_keys=True)
    MEASURED.write_text(f"{text}\n", encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
