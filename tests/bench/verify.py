"""What verification costs against the build it checks: `python -m tests.bench.verify [FOLDER ...]`.

A FOLDER holds a Transformers model of more than 20 million parameters (config.json, safetensors);
without one, a seeded BERT of 33 million stands in. Every target is built in a new store and
verified, so both sides are from the same minutes of the same machine. Prints for each cell the
time of both, by the clock and of the processors (which tells the same on a busy machine), and the
most memory that all processes of the slot held; then the ratios over all cells, and what of it an
emulator took. The runtimes are those of this machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psutil

from flows.packages.builder import open_builder
from flows.plan.planning import plan_of
from flows.settings.engines import runtimes_of
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from tests.bench.command import table
from workers.verify.measuring import EMULATED
from workers.verify.verifier import Verifier

SEEDED = """
[[model]]
id = "bench/bert-33m"
task = "feature-extraction"
[model.random]
architecture = "bert"
seed = 3
config = { hidden_size = 512, num_hidden_layers = 6, num_attention_heads = 8, \
intermediate_size = 2048, vocab_size = 27000, initializer_range = 0.05 }
"""


@dataclass(slots=True)
class Spent:
    """On one side of one cell."""

    seconds: float = 0.0
    processor: float = 0.0
    memory: int = 0


def main() -> None:
    """Build every target of each model in a new store, verify each, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="*")
    parser.add_argument("--task", default="feature-extraction")
    parser.add_argument("--runtimes", default="", help="comma separated, or none")
    options = parser.parse_args()
    given = [
        f'[[model]]\nid = "bench/{path.name.lower()}"\ntask = "{options.task}"\n'
        f"folder = {json.dumps(str(path.absolute()))}\n"
        for path in options.model
    ]
    runtimes = tuple(filter(None, options.runtimes.split(",")))
    for text in given or [SEEDED]:
        with tempfile.TemporaryDirectory() as folder:
            catalog = Path(folder) / "catalog.toml"
            catalog.write_text(text, "utf-8")
            flags = {"home": str(Path(folder) / "home"), "runtimes": runtimes}
            measure(resolve(flags, {}, Path(folder), None), str(catalog))


def measure(settings: Settings, catalog: str) -> None:
    """One pass, cold."""
    plan = plan_of(settings, catalog, date(2026, 6, 9))
    verifier = Verifier(runtimes_of(settings), settings.verify)
    sides = [f"{side} {unit}" for unit in ("s", "CPU s", "GB") for side in ("build", "verify")]
    rows: list[tuple[object, ...]] = [("cell", "MB", *sides)]
    building, verifying, emulated = Spent(), Spent(), 0.0
    with open_builder(plan, settings) as builder:
        for cell in plan.cells():
            with watched(building) as build:
                built = builder.build(cell)
            with watched(verifying) as verify:
                proven = verifier.verify(built)
            emulated += _emulated(proven.build_record)
            size = built.bytes
            built.release()
            rows.append((cell.id, f"{size / 1e6:.0f}", *shown(build, verify)))
    verifier.close()
    rows.append(("all", "", *shown(building, verifying)))
    table(rows)
    clock, work = verifying.seconds / building.seconds, verifying.processor / building.processor
    native = (verifying.seconds - emulated) / building.seconds
    print(f"verification takes {clock:.2f} of the time of the builds, {work:.2f} of their work;")
    print(f"an emulated device takes {emulated:.1f} s of it, without that it is {native:.2f}\n")


def _emulated(record: Mapping[str, Any]) -> float:
    """Seconds in which software stood in for a device: a device would take next to none."""
    return sum(
        float(told["open"] + EMULATED * told["run"])
        for one in record["runtimes"]
        if one.get("emulated") and one["ran"]
        for told in one["seconds"].values()
    )


def shown(*sides: Spent) -> Iterator[str]:
    """Seconds of both, work of both, memory of both."""
    yield from (f"{side.seconds:.2f}" for side in sides)
    yield from (f"{side.processor:.2f}" for side in sides)
    yield from (f"{side.memory / 1e9:.2f}" for side in sides)


@contextmanager
def watched(total: Spent) -> Iterator[Spent]:
    """Time a block and sample the memory of this process's children."""
    spent, over = Spent(), threading.Event()
    sampler = threading.Thread(target=_sample, args=(spent, over))
    sampler.start()
    began, worked = time.monotonic(), _worked()
    try:
        yield spent
    finally:
        spent.seconds = time.monotonic() - began
        over.set()
        sampler.join()
        spent.processor = _worked() - worked
        total.seconds += spent.seconds
        total.processor += spent.processor
        total.memory = max(total.memory, spent.memory)


def _worked() -> float:
    """Processor time of this process and of its children, which live as long as the benchmark."""
    own = psutil.Process()
    found = 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def _sample(spent: Spent, over: threading.Event) -> None:
    own = psutil.Process()
    while not over.wait(0.05):
        held = 0
        for child in own.children(recursive=True):
            with suppress(psutil.Error):
                held += child.memory_info().rss
        spent.memory = max(spent.memory, held)


if __name__ == "__main__":
    main()
