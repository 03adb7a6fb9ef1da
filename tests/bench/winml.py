"""A sweep with the winml engine against `winml build` run once per cell on the command line.

    python -m tests.bench.winml [MODEL ...]        (bert vit resnet minilm)

Needs the environment of winml-cli (MODELMILL_WINML_PYTHON, or it makes one). Both sides run in
turn on this machine, offline, from cold: ours with the start of its host and every import in it.
Prints times, ratios, whether the bytes are equal, what is stored, and what a second sweep runs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matrix.digest import FileEntry
from tests.engines.winml import (
    FLAGS,
    PYTHON,
    ROOT,
    arguments,
    builder,
    clean_environment,
    final_files,
    folder_entry,
    model_digests,
    model_folder,
    plan_of,
    run,
    winml_python,
)
from workers.build.built import Built
from workers.store import usage_of

SMALL = ("bert", "vit", "resnet")
GOALS = {"small models": 8.0, "minilm": 3.0}


@dataclass(slots=True)
class Side:
    """What one side took and made."""

    seconds: dict[str, float] = field(default_factory=dict)
    digests: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """Of the final files of each cell, external data among them."""

    @property
    def total(self) -> float:
        """Of all models."""
        return sum(self.seconds.values())


def command_line(models: Sequence[str], folders: Path, root: Path) -> Side:
    """`winml build`, a process per cell."""
    side = Side()
    for name in models:
        folder = model_folder(name, folders)
        began = time.perf_counter()
        for label in FLAGS:
            out = root / name / label
            command = [str(winml_python()), "-m", "winml.modelkit", "build"]
            run([*command, *arguments(label, folder, out)])
        side.seconds[name] = time.perf_counter() - began
        for label in FLAGS:
            side.digests[name, label] = final_files(root / name / label)
    return side


def engine(models: Sequence[str], folders: Path, root: Path) -> Side:
    """The same cells from one warm host, then all of them again."""
    side = Side()
    entries = {name: folder_entry(name, model_folder(name, folders)) for name in models}
    plan = plan_of(entries, root)
    packages: list[Built] = []
    with builder(root) as made:
        for planned in plan.models:
            began = time.perf_counter()
            for cell in planned.cells:
                built = made.build(cell)
                packages.append(built)
                side.digests[planned.model.id, cell.target.label] = model_digests(built)
            side.seconds[planned.model.id] = time.perf_counter() - began
        began = time.perf_counter()
        again = [made.build(cell) for cell in plan.cells()]
        took = time.perf_counter() - began
        ran = sum(not stage.reused for built in again for stage in built.stages)
        print(f"  second sweep: {took:.2f} s, {ran} stages run")
        _print_bytes(packages, usage_of(made.store.root).size)
    return side


def whole_command(root: Path) -> float:
    """Seconds of `modelmill sweep` for the same cells: with verifying and publishing, from cold.

    Random weights that are calibrated with random samples need not reach parity.
    """
    folder = root / "mill"
    folder.mkdir()
    shutil.copy(root / "catalog.toml", folder)
    began = time.perf_counter()
    sweep = ("sweep", "catalog.toml", "--engine", "winml", "--publish-unverified")
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *sweep],
        cwd=folder,
        env={**clean_environment(), PYTHON: str(winml_python()), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    took = time.perf_counter() - began
    if done.returncode:
        print(f"  modelmill sweep exits with {done.returncode}")
    return took


def _print_bytes(packages: Iterable[Built], stored: int) -> None:
    entries = [file.entry for built in packages for file in built.files]
    models = [entry for entry in entries if ".onnx" in entry.path]
    distinct = {entry.sha256: entry for entry in models}.values()
    print(
        f"  packages hold {_size(models)} of models, {_size(distinct)} of them distinct; "
        f"the store has {stored / 1e6:.1f} MB with exports and records"
    )


def _size(entries: Iterable[FileEntry]) -> str:
    return f"{sum(entry.size for entry in entries) / 1e6:.1f} MB"


def compare(title: str, models: Sequence[str], folders: Path, root: Path) -> None:
    """One sweep on both sides."""
    print(f"{title}: {len(models)} models x {len(FLAGS)} targets")
    theirs = command_line(models, folders, root / "cli")
    ours = engine(models, folders, root / "engine")
    for name in models:
        one, two = theirs.seconds[name], ours.seconds[name]
        print(f"  {name:8} winml {one:7.1f} s   engine {two:6.1f} s   {one / two:5.1f}x")
    equal = sum(ours.digests[key] == digest for key, digest in theirs.digests.items())
    print(f"  {equal} of {len(theirs.digests)} cells have equal bytes")
    whole = whole_command(root / "engine")
    ratio = theirs.total / whole
    print(f"  modelmill sweep, verified and published: {whole:.1f} s, {ratio:.1f}x")
    goal = GOALS.get(title, 0)
    print(f"  together {theirs.total / ours.total:.1f}x (goal: at least {goal:.0f}x)", flush=True)


def main(names: Sequence[str]) -> None:
    """Run the benchmark for some models."""
    chosen = names or (*SMALL, "minilm")
    with tempfile.TemporaryDirectory(prefix="bench-winml-") as temporary:
        root = Path(temporary)
        sweeps = {
            "small models": [name for name in chosen if name != "minilm"],
            "minilm": [name for name in chosen if name == "minilm"],
        }
        for title, models in sweeps.items():
            if models:
                compare(title, models, root / "models", root / title.replace(" ", "-"))


if __name__ == "__main__":
    main(sys.argv[1:])
