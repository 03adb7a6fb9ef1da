"""The catalog's `dataset`.

An `.npz` file holds one array per graph input, under the input's name, with the samples along a
first axis that the graph does not have; in a `.jsonl` file every line is one sample, an object of
nested lists by input name. For a composite model the names are `<component>/<input>`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine.files import hash_file
from matrix.codec import parse_json
from workers.sources.errors import failing, listed, quantize_error

if TYPE_CHECKING:  # runtimes read samples too
    from workers.sources.runtime import Signature

Sample = Mapping[str, Any]


def dataset_params(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """What a catalog's dataset contributes to a key: the content of its file, not its path."""
    others = {name: value for name, value in dataset.items() if name != "path"}
    return others | {"sha256": _file_digest(dataset)}


def _file_digest(dataset: Mapping[str, Any]) -> str:
    path = dataset.get("path")
    if not isinstance(path, str):
        raise quantize_error("the dataset has no path", 'dataset = { path = "calibration.npz" }')
    with failing(quantize_error, f"the dataset {path} cannot be read", "correct its path", OSError):
        return hash_file(Path(path))[0]


def read_dataset(path: Path, component: str, limit: int) -> list[dict[str, Any]]:
    """At most `limit` samples for one component from a dataset file."""
    what, hint = f"the dataset {path.name} cannot be read", "see the README for its format"
    with failing(quantize_error, what, hint, OSError, ValueError, EOFError, KeyError):
        found = read(path, limit)
    prefix = f"{component}/" if component else ""
    return [
        {name.removeprefix(prefix): value for name, value in sample.items()
         if name.startswith(prefix)}
        for sample in found
    ]  # fmt: skip


def fitted(given: Mapping[str, Any], wanted: Signature) -> dict[str, Any]:
    """A sample of a dataset in the types of a graph's inputs, of which it may lack some."""
    import numpy as np

    if unknown := set(given) - set(wanted):
        raise quantize_error(
            f"the dataset has an array '{min(unknown)}' that is not an input of the model",
            f"its inputs: {listed(wanted)}",
        )
    fitting = {}
    for name, value in given.items():
        array = np.asarray(value, dtype=wanted[name].dtype)
        if not wanted[name].fits(array.shape):
            raise quantize_error(
                f"the dataset's '{name}' has the shape {list(array.shape)}, the model takes "
                f"{list(wanted[name].shape)}"
            )
        fitting[name] = array
    return fitting


def read(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """The first samples of a file. Raises `OSError`, `ValueError`, `EOFError` or `KeyError`."""
    if path.suffix == ".npz":
        return _read_npz(path, limit)
    if path.suffix == ".jsonl":
        return _read_jsonl(path, limit)
    raise ValueError("a dataset is a .npz or .jsonl file")


def _read_npz(path: Path, limit: int | None) -> list[dict[str, Any]]:
    import numpy as np

    try:
        # Opened here because NumPy leaves a file open that is not an archive.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            stacked = {name: arrays[name][:limit] for name in arrays.files}
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error
    counts = {len(array) for array in stacked.values()}
    if len(counts) != 1 or 0 in counts:
        raise ValueError("its arrays need the same number of samples along their first axis")
    return [
        {name: array[index, ...] for name, array in stacked.items()}
        for index in range(counts.pop())
    ]


def _read_jsonl(path: Path, limit: int | None) -> list[dict[str, Any]]:
    import numpy as np

    found: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as lines:
        for line in islice(filter(str.strip, lines), limit):
            match parse_json(line):
                case dict() as row:
                    found.append({name: np.asarray(value) for name, value in row.items()})
                case _:
                    raise ValueError(f"line {len(found) + 1} is not an object")
    if not found:
        raise ValueError("it has no sample")
    return found
