"""The files of the stage `inputs`, one folder for each component.

fit.npz, choose.npz   several samples: an array for each input of the graph, with the samples
                      along a first axis that the graph does not have
judge/00.npz, ...     one sample each, its arrays as the graph takes them
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.samples.parts import CHOOSE, FIT, JUDGE, PARTS, digest
from workers.sources.errors import quantize_error

Sample = Mapping[str, Any]
Parts = Mapping[str, Sequence[Sample]]
"""The samples of each part."""


def save(samples: Parts, folder: Path, component: str = "") -> None:
    """Write the parts of a component, whose samples have equal names, types and shapes."""
    import numpy as np

    judge = folder / component / JUDGE
    judge.mkdir(parents=True, exist_ok=True)
    for part in (FIT, CHOOSE):
        names = sorted(samples[part][0])
        stacked: dict[str, Any] = {
            name: np.stack([one[name] for one in samples[part]]) for name in names
        }
        write_arrays(folder / component / f"{part}.npz", stacked)
    for number, one in enumerate(samples[JUDGE]):
        write_arrays(judge / f"{number:02}.npz", one)


def write_arrays(file: Path, arrays: Mapping[str, Any]) -> None:
    """Write what `np.savez` does on Linux: equal arrays give equal bytes on every system."""
    import numpy as np

    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.create_system = 3  # else the system that it was written on
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(arrays[name]), allow_pickle=False)


def load(folder: Path, component: str, part: str) -> list[dict[str, Any]]:
    """The samples of a part."""
    if part == JUDGE:
        return [sample(file) for file in judged(folder, component)]
    stacked = sample(_place(folder, component) / f"{part}.npz")
    count = len(next(iter(stacked.values())))
    # With `...` a number without axes is an array as well, as ONNX Runtime demands.
    return [{name: array[index, ...] for name, array in stacked.items()} for index in range(count)]


def judged(folder: Path, component: str = "") -> list[Path]:
    """The files of the samples for the verdict, in order."""
    return sorted((_place(folder, component) / JUDGE).glob("*.npz"))


def sample(file: Path) -> dict[str, Any]:
    """The arrays of a file."""
    import numpy as np

    # Opened here because NumPy leaves a file open that is not an archive.
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def check_even(made: Sequence[Sample]) -> None:
    """Raise `StageError` unless all samples have the same shapes."""
    for one in made[1:]:
        for name, array in one.items():
            if array.shape != made[0][name].shape:
                raise quantize_error(
                    f"samples differ in the shape of '{name}': {list(made[0][name].shape)} and "
                    f"{list(array.shape)}",
                    "pad or cut the dataset to one shape",
                )


def size(exported: Path) -> int:
    """Bytes of the graphs and weights of an export."""
    return sum(path.stat().st_size for path in exported.rglob("*") if path.is_file())


def facts(
    divided: Mapping[str, Parts],
    kind: str,
    origin: str,
    kinds: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """What the manifest says of the samples of all components; `kinds`: of their inputs, where it
    is not that of the whole."""
    first = next(iter(divided.values()))
    every = (one for sets in divided.values() for part in PARTS for one in sets[part])
    return {
        "samples": {
            "kind": kind,
            "origin": origin,
            "parts": {part: len(first[part]) for part in PARTS},
            "digest": digest(every),
        },
        "inputs": {
            name or ".": _described(sets[FIT], kind, kinds.get(name, {}))
            for name, sets in divided.items()
        },
    }


def _described(sets: Sequence[Sample], kind: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Of every input the type, the shape, the kind, and which values calibration sees."""
    found: dict[str, Any] = {}
    for key, array in sorted(sets[0].items()):
        found[key] = {
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "kind": kinds.get(key, kind),
        }
        if array.dtype.kind in "fiub" and array.size:
            low, high = (min(one[key].min() for one in sets), max(one[key].max() for one in sets))
            found[key]["range"] = [float(low), float(high)]
    return found


def _place(folder: Path, component: str) -> Path:
    """A stage that runs for a component is given the files of that one alone."""
    own = folder / component
    return own if own.is_dir() else folder
