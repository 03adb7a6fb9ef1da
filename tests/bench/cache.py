"""A second machine without anything but the cache of the first.

    python -m tests.bench.cache [CATALOG [FLAG ...]]    default: a BERT of 8 layers, for two targets

What counts is processor time, of the command and of all its children; sweeps are not shown in
Prefect, whose server takes as much on both. The goal: with the cache, the second machine takes at
most 25 % of the first one's. In any case a machine starts the engine and verifies each package, so
tiny models gain least.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from state.state import open_state
from tests.bench.command import modelmill, table

CATALOG = """
[[model]]
id = "bench/bert"
task = "fill-mask"
[model.random]
architecture = "bert"
seed = 1
config = { hidden_size = 512, num_hidden_layers = 8, num_attention_heads = 8, vocab_size = 8000 }
"""


def main(catalog: str = "", *flags: str) -> None:
    """Sweep on two machines, one after the other."""
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name)
        if not catalog:
            (folder / "catalog.toml").write_text(CATALOG, "utf-8")
            catalog, flags = "catalog.toml", ("--target", "mlas_cpu", "--target", "qnn_npu")
        first = _sweep(folder, catalog, "first", "--cache", "cache", *flags)
        second = _sweep(folder, catalog, "second", "--cache", "cache", *flags)
    rows: list[tuple[object, ...]] = [("", "processor s", "stages run", "of the first")]
    for label, (seconds, ran) in (("first", first), ("second", second)):
        rows.append((label, f"{seconds:.1f}", ran, f"{seconds / first[0]:.3f}"))
    table(rows)


def _sweep(folder: Path, catalog: str, home: str, *flags: str) -> tuple[float, int]:
    before = os.times()
    words = ("sweep", catalog, "--stamp", "1", "--home", home, "--jobs", "1")
    modelmill(folder, *words, *flags, module="tests.sweeps.plain")
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    with open_state(folder / home / "state.db") as state:
        info = state.find_sweep("1")
        assert info is not None
        return spent, sum(not run.reused for run in state.stage_runs(info.id))


if __name__ == "__main__":
    main(*sys.argv[1:])
