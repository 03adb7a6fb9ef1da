"""Real tunings of one small model: `python -m tests.bench.tune_twice [--target ov_cpu]`.

The same model is tuned twice with other seeds, each time in a home of its own but with one store,
so that the second tuning is warm. Told of each: how much of its time is measuring (the goal of the
warm one is 80 %) and how many exports its hypotheses took (at most 3), and then both verdicts on
every trial with the gain. Gains that lie near --min-gain may get two verdicts. It takes about four
minutes on an idle machine; on a busy one many verdicts are `too noisy`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from flows.output.table import render
from workers.store.store import Store

CATALOG = """
[[model]]
id = "bench/convnext"
task = "image-classification"
model_type = "convnext"

[model.random]
architecture = "convnext"
seed = 3

[model.random.config]
depths = [2, 2, 4, 2]
hidden_sizes = [48, 96, 192, 384]
image_size = 128
num_labels = 32
initializer_range = 0.1
"""
MEASURING = re.compile(r"(\d+)% of it measuring")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="mlas_cpu")
    target = parser.parse_args().target
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name)
        (folder / "catalog.toml").write_text(CATALOG, "utf-8")
        found = [tuned(folder, target, seed) for seed in (1, 2)]
        print(f"exports: {exports(folder / 'store')} of at most 3")
    for seed, (share, _) in enumerate(found, 1):
        print(f"tuning {seed}: {share} % of its time is measuring")
    rows = [(key, *row(first), *row(found[1][1][key])) for key, first in found[0][1].items()]
    print(render(("trial", "first", "gain", "second", "gain"), rows))


def tuned(folder: Path, target: str, seed: int) -> tuple[str, dict[str, dict[str, Any]]]:
    """The share of measuring in percent, and the trials by name."""
    name, home = f"seed-{seed}", str(folder / f"home-{seed}")
    places = ("--home", home, "--store", str(folder / "store"))
    tune = ("tune", "catalog.toml", "--target", target, "--name", name, "--seed", str(seed))
    told = modelmill(folder, *tune, *places, "--threads", "1", "--iterations", "200")
    modelmill(folder, "tune", "report", name, "--dest", str(folder), "--home", home)
    report = json.loads((folder / f"{name}.json").read_text("utf-8"))
    share = MEASURING.search(told)
    trials = report["tunings"][0]["trials"]
    return share[1] if share else "?", {one["key"]: one for one in trials}


def modelmill(folder: Path, *words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "modelmill", *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def exports(root: Path) -> int:
    """How many exports are in a store; only these name the architecture that they exported."""
    store = Store(root)
    try:
        actions = [store.lookup(file.stem) for file in (root / "actions").rglob("*.json")]
        return sum("model_type" in action.facts for action in actions if action)
    finally:
        store.close()


def row(trial: dict[str, Any]) -> tuple[str, str]:
    """A verdict and its gain."""
    gain = trial["gain"]
    if not gain:
        return trial["verdict"], ""
    return trial["verdict"], f"{gain:+.1f} % ({trial['low']:+.1f} to {trial['high']:+.1f})"


if __name__ == "__main__":
    main()
