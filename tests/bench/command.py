"""Running the real command for a benchmark, watched from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.fakes.engine import SITE

ROOT = Path(__file__).parents[2]
LABELS = 8
"""Targets of the default matrix."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run took. Memory is the command's own process, not its children's."""

    seconds: float
    peak: int
    out: str


def modelmill(
    folder: Path, *arguments: str, expect: int = 0, module: str = "flows.cli.main"
) -> Measured:
    """Run `modelmill ARGUMENTS` in a folder and sample its memory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env = {
        **kept,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(SITE))),
        "MODELMILL_RUNTIMES": "none",
    }
    began = time.perf_counter()
    log = folder / "out.txt"
    with log.open("w") as out:
        popen = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        process, peak = psutil.Process(popen.pid), 0
        while popen.poll() is None:
            try:
                peak = max(peak, process.memory_info().rss)
            except psutil.Error:
                break
            time.sleep(0.1)
        code = popen.wait()
    seconds = time.perf_counter() - began
    text = log.read_text()
    if code != expect:
        raise SystemExit(f"modelmill {' '.join(arguments)} ended with {code}:\n{text[-2000:]}")
    return Measured(seconds, peak, text)


def write_catalog(folder: Path, models: int) -> str:
    """A catalog of so many small models for the do-nothing engine."""
    entries = [
        f'[[model]]\nid = "bench/model-{number:05d}"\ntask = "fill-mask"\npriority = "P0"\n'
        f'random = {{ architecture = "bert", seed = {number} }}\n'
        for number in range(models)
    ]
    (folder / "catalog.toml").write_text("\n".join(entries), "utf-8")
    return "catalog.toml"


def table(rows: list[tuple[object, ...]]) -> None:
    """Print rows in columns."""
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(str(value).rjust(width) for value, width in zip(row, widths, strict=True)))
