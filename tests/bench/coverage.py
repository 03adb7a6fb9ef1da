"""Builds and verifies the whole zoo with both engines, and writes the results to
matrix/data/measured.json and their page, docs/zoo.md.

    python -m tests.bench.coverage                        sweeps the zoo: two hours
    python -m tests.bench.coverage LOG... --winml LOG...  reads the output of such sweeps: later
                                                          logs win, and cells that are in no log
                                                          keep their result
    python -m tests.bench.coverage --anew LOG...          the same, but they are "not run", because
                                                          the rules of verification have changed
    python -m tests.bench.coverage --registry FILE        says how much of a registry is verified

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
from collections.abc import Iterable, Iterator
from pathlib import Path

from matrix.catalog import load_catalog
from matrix.coverage import MEASURED, VERIFIED, cover, heads, measured

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
OPTIMUM, WINML = "optimum", "winml"
CPU, NPU = "mlas_cpu", "qnn_npu"
COLUMNS = {
    (OPTIMUM, CPU): "CPU",
    (OPTIMUM, NPU): "NPU, w8a16",
    (WINML, CPU): "winml engine: CPU",
    (WINML, NPU): "winml engine: NPU, w8a16",
}
KINDS = {
    "feature extraction": ("feature-extraction",),
    "reading texts": (
        "fill-mask", "multiple-choice", "question-answering", "table-question-answering",
        "text-classification", "token-classification",
    ),
    "writing texts": ("text-generation", "text2text-generation"),
    "sounds": (
        "audio-classification", "audio-frame-classification", "audio-xvector",
        "automatic-speech-recognition",
    ),
    "pictures and texts": (
        "document-question-answering", "image-text-to-text", "image-to-text",
        "visual-question-answering", "zero-shot-image-classification",
        "zero-shot-object-detection",
    ),
    "pictures, videos, series": (),
}  # fmt: skip
"""Tasks by kind; the last kind has all others."""
GOOD = ("published", "unchanged")
LINE = re.compile(r"\[ *\d+/\d+\] (\w+) +zoo/([^:\s]+):(\S+)@(\w+) +(.*)")
PASSING = re.compile(
    "(DISK|NETWORK|CRASH|TIMEOUT) |cancelled|skipped|planned|building|built|verifying|publishing"
)
"""What says nothing of a model."""
HEAD = """# The zoo: a tiny model for every pair that builds

<!-- made by `python -m tests.bench.coverage` -->

The packaged catalog `zoo` has a tiny model with seeded random weights for every pair of
architecture and task for which [coverage](coverage.md) says `builds`. `modelmill sweep zoo` builds
and verifies all of them. This page counts the results for ONNX Runtime's CPU provider and, in
w8a16, for an emulated NPU of Qualcomm. `modelmill coverage --json` shows the result for the pair of
any catalog entry.

A model is verified if every rung of [verification](verification.md) holds. The samples are
synthetic, because a random model has no others. The results of the winml engine are older: they
compare only the cosine of outputs on generated values, so they prove less.

## How many models are verified

Some results are missing; each column counts only the pairs that were run.

"""
EXCEPTIONS = """
## What is not verified, and why

- `samples`: the samples do not exercise these random weights, for example because all of them get
  the same class.
- `N dB`: these random weights lose too much accuracy in w8a16, which must have 15 dB. A trained
  model of the same architecture is easier to quantize than a random one of two layers.
- `N% agree`: the errors are small enough, but too many decisions differ from the export's.
- `does not load`: the emulator cannot open or run the model: Mamba 2, which most of these contain,
  multiplies tensors of six dimensions.

A number after an architecture says how many of its tasks are concerned, if there is more than one.
"""
Results = dict[tuple[str, str, str, str], str]
"""Engine, target, architecture and task -> the result."""


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


def results(lines: Iterable[str], engine: str) -> Results:
    """What the output of sweeps says."""
    found: Results = {}
    for line in lines:
        if match := LINE.match(line):
            status, architecture, task, target, message = match.groups()
            if not PASSING.match(message) and not PASSING.match(status):
                found[engine, target, architecture, task] = result(status, message)
    return found


def result(status: str, message: str) -> str:
    """The result of one cell in a few words."""
    if status in GOOD:
        return VERIFIED
    if "parity failed" in message:
        ratios = re.findall(r"signal-to-noise ratio (-?\d[\d.]*) dB", message)
        shares = re.findall(r"(\d[\d.]*)% of", message)
        if ratios:
            return f"{min(map(float, ratios)):.1f} dB"
        return f"{min(map(float, shares)):.1f}% agree" if shares else "parity"
    if "loads failed" in message:
        return "does not load"
    if "samples failed" in message:
        return "samples"
    return status.replace("_", " ")


def known() -> Results:
    """The results of earlier sweeps, of pairs that are still in the zoo."""
    there = set(pairs())
    return {
        (engine, target, *pair): told
        for engine, by_target in measured().items()
        for target, by_pair in by_target.items()
        for pair, told in by_pair.items()
        if pair in there
    }


def pairs() -> Iterator[tuple[str, str]]:
    """Architecture and task of every entry."""
    for model in load_catalog("zoo", base=Path.cwd()).models:
        yield model.source.ref, model.task


def text_of(found: Results) -> str:
    """The results as `matrix.coverage.measured` reads them: architectures by result."""
    table: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    for (engine, target, architecture, task), told in sorted(found.items()):
        by_result = table.setdefault(engine, {}).setdefault(target, {}).setdefault(told, {})
        by_result[architecture] = f"{by_result.get(architecture, '')} {task}".strip()
    return json.dumps(table, indent=1, sort_keys=True) + "\n"


def page(found: Results) -> str:
    """The whole page."""
    columns = {key: head for key, head in COLUMNS.items() if any(one[:2] == key for one in found)}
    kinds = Counter(_kind(task) for _architecture, task in pairs())
    rows = [
        ["task", "models", *columns.values()],
        *([kind, str(kinds[kind]), *(_share(found, key, kind) for key in columns)]
          for kind in KINDS),
        ["all", str(kinds.total()), *(_share(found, key) for key in columns)],
    ]  # fmt: skip
    lines = [f"| {' | '.join(row)} |" for row in rows]
    table = [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]
    parts = [HEAD + "\n".join(table) + "\n" + EXCEPTIONS]
    for key, head in columns.items():
        if key[0] == OPTIMUM:
            parts.append("\n".join([f"{head}:\n", *_exceptions(found, key), ""]))
    return "\n".join(parts)


def _kind(task: str) -> str:
    plain = task.removesuffix("-with-past")
    return next((kind for kind, tasks in KINDS.items() if plain in tasks), list(KINDS)[-1])


def _share(found: Results, column: tuple[str, str], kind: str = "") -> str:
    """How many of the pairs that were run are verified."""
    told = [one for key, one in found.items() if key[:2] == column and kind in ("", _kind(key[3]))]
    return f"{told.count(VERIFIED)} of {len(told)}" if told else "not run"


def _exceptions(found: Results, column: tuple[str, str]) -> Iterator[str]:
    """What is not verified, by reason."""
    reasons: dict[str, Counter[str]] = {}
    for (engine, target, architecture, _task), told in sorted(found.items()):
        if (engine, target) == column and told != VERIFIED:
            reasons.setdefault(_reason(told), Counter())[architecture] += 1
    for reason, counts in sorted(reasons.items(), key=lambda one: -one[1].total()):
        named = (f"{name} ({count})" if count > 1 else name for name, count in counts.items())
        yield f"- {reason}, {counts.total()}: {', '.join(named)}"


def _reason(told: str) -> str:
    """The group of a result; decibels in steps of what a repair can bring."""
    if told.endswith(" dB"):
        ratio = float(told.removesuffix(" dB"))
        return "12 to 15 dB" if ratio >= 12 else "less than 12 dB"
    return "decisions" if told.endswith(" agree") else f"`{told}`"


def share_of(registry: str) -> str:
    """How much of a registry's pairs of architecture and task, and of its entries, is verified."""
    entries, there = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
    models = load_catalog(registry, base=Path.cwd()).models
    told = known()
    for model in models:
        found = cover(model, OPTIMUM)
        if found.architecture in heads():
            there[found.architecture, model.task] = found.task
        for column in COLUMNS:
            key = (*column, found.architecture, found.task)
            entries[column] += told.get(key) == VERIFIED
    lines = [f"{len(models)} entries; {len(there)} pairs have an architecture of Transformers"]
    for column, head in COLUMNS.items():
        keys = ((*column, name, task) for (name, _), task in there.items())
        good = sum(told.get(key) == VERIFIED for key in keys)
        share = good / max(len(there), 1)
        lines.append(f"{head}: {good} pairs ({share:.0%}), {entries[column]} entries are verified")
    return "\n".join(lines)


def lines_of(logs: Iterable[str]) -> list[str]:
    """The lines of all logs."""
    return [line for log in logs for line in Path(log).read_text("utf-8").splitlines()]


def main() -> None:
    """Write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", metavar="LOG", help="output of sweeps")
    parser.add_argument("--winml", nargs="+", metavar="LOG", default=[], help="of the winml engine")
    parser.add_argument("--anew", action="store_true", help="forget earlier results of ours")
    parser.add_argument("--registry", metavar="FILE", help="a catalog or registry")
    given = parser.parse_args()
    if given.registry:
        print(share_of(given.registry))
        return
    ours, theirs = lines_of(given.logs), lines_of(given.winml)
    if not ours and not theirs:
        ours = sweep("--target", f"{CPU},{NPU}")
        theirs = sweep("--target", f"{CPU},{NPU}", "--engine", "winml")
    told = {key: one for key, one in known().items() if not given.anew or key[0] == WINML}
    told |= results(ours, OPTIMUM) | results(theirs, WINML)
    MEASURED.write_text(text_of(told), encoding="ascii", newline="\n")
    PAGE.write_text(page(told), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
