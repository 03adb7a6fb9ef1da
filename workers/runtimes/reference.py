"""The files of a reference: what the export computes from the samples of a package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.verification import Limit
from workers.numerics.compare import exercise, referred
from workers.numerics.kept import Kept, from_arrays, to_arrays
from workers.samples import files

Json = Mapping[str, Any]


def read(file: Path) -> dict[str, Kept]:
    """The outputs of a reference."""
    return from_arrays(files.sample(file))


def whole(file: Path, output: str) -> Any:
    """An output that is kept as it is. Raises `ValueError` if only some of its rows are."""
    found = files.sample(file)
    if f"{output}#rows" in found:
        raise ValueError(f"the package lacks some of {output}")
    return found[output]


def keep_outputs(args: Json) -> Json:
    """Write what is kept of saved outputs, one file for each sample, in at most `most` bytes."""
    inputs = {name: dims for name, _, dims in args["inputs"]}
    declared = {name: dims for name, _, dims in args["outputs"]}
    for number, outputs in enumerate(load(Path(args["saved"]))[: len(args["to"])]):
        sample = files.sample(Path(args["samples"][number]))
        kept = referred(
            outputs, sample, inputs, declared, task=args["agree"], most=float(args["most"])
        )
        found: dict[str, Any] = {}
        for name, one in kept.items():
            found |= to_arrays(name, one)
        write(Path(args["to"][number]), found)
    return {}


def write(file: Path, found: Mapping[str, Any]) -> None:
    """Equal arrays give equal bytes on every machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write_arrays(file, found)


def exercised(args: Json) -> dict[str, Any]:
    """How far a reference varies between samples, and which values the samples take."""
    wanted = [read(Path(file)) for file in args["reference"]]
    samples = [files.sample(Path(file)) for file in args["samples"]]
    inputs = {
        name: {
            "low": float(min(one[name].min() for one in samples)),
            "high": float(max(one[name].max() for one in samples)),
        }
        for name, value in samples[0].items()
        if value.dtype.kind in "fiub" and value.size
    }
    return {
        "outputs": exercise(wanted, Limit(**args["limit"]), args.get("agree", "")),
        "inputs": inputs,
    }


def save(path: Path, sets: list[Any]) -> None:
    """Outputs of several samples in one file, for use within a verification."""
    import numpy as np

    flat: dict[str, Any] = {
        f"{at}/{name}": value.astype(str) if value.dtype == object else value  # never a pickle
        for at, one in enumerate(sets)
        for name, value in one.items()
        if isinstance(value, np.ndarray)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **flat)


def load(path: Path) -> list[dict[str, Any]]:
    """What `save` has written."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in files.sample(path).items():
        at, _, name = key.partition("/")
        found.setdefault(int(at), {})[name] = value
    return [found[at] for at in sorted(found)]
