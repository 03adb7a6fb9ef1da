"""The catalog's `dataset`: a file of tensors or texts, or a folder of images or sounds.

    .npz       an array for each input of the graph, with the samples along a first axis
    .jsonl     a sample on each line, an object of nested lists by input, or of texts by column
    .csv       a sample on each line, cells are numbers, JSON lists or texts
    .parquet   like .jsonl, where pyarrow is installed
    a folder   images or sounds, also in folders inside it

For the tensors of a composite model the names are `COMPONENT/INPUT`. Samples are taken in an order
that has nothing to do with theirs, so that data sorted by class or length serve all parts alike.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine.files import hash_file
from matrix.codec import parse_json
from matrix.datasets import LEAST
from matrix.digest import value_digest
from workers.engine import Request
from workers.samples import parts, tables
from workers.sources.errors import failing, listed, quantize_error

if TYPE_CHECKING:  # runtimes read samples too
    from workers.sources.runtime import Signature
import math
import wave

TENSORS, TEXTS, IMAGES, SOUNDS = "tensors", "texts", "images", "sounds"
_SUFFIXES = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".webp"), IMAGES),
    ".wav": SOUNDS,
}
_COLUMNS = {
    "question": ("question",),
    "context": ("context",),
    "text": ("text", "sentence", "sentence1", "premise", "query", "prompt", "content", "review"),
    "text_pair": ("text_pair", "sentence2", "hypothesis", "passage", "document"),
}
"""Usual names of columns, by what they hold."""
LABELS = ("label", "labels", "id", "idx", "index", "answer", "answers", "target")
"""Columns that are left aside."""
Row = dict[str, Any]
Texts = tuple[str, str | None]
Rows = tuple[str, Callable[[int], Any], int, Callable[[Any], str]]
"""Their form, each by its number, how many there are, and what tells them apart."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Its distinct samples, as many as are used."""

    name: str
    form: str
    rows: Sequence[Any]
    """Arrays by input, texts, or files."""
    stated: Mapping[str, Any]
    """The catalog's table."""
    notice: str = ""
    """What was left out; empty: nothing."""


def samples_params(request: Request, rule: list[list[int]]) -> dict[str, Any]:
    """What the samples of a model depend on, for the key of the stage that makes them."""
    params: dict[str, Any] = {"parts": rule}
    if shapes := dict(request.policy.get("shapes") or {}):
        params["shapes"] = shapes
    if dataset := request.model.get("dataset"):
        params["dataset"] = dataset_params(dataset, parts.most(rule))
    return params


def dataset_params(dataset: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """What a dataset of which so many samples are used contributes to a key: its content, not its
    path."""
    others = {name: value for name, value in dataset.items() if name != "path"}
    path = _path(dataset)
    what, hint = f"the dataset {path} cannot be read", "correct its path"
    with failing(quantize_error, what, hint, OSError, ValueError):
        if not path.is_dir():
            return others | {"sha256": hash_file(path)[0]}
        files = _files(path)[0][: _limit(dataset, limit)]
        told = [[file.relative_to(path).as_posix(), hash_file(file)[0]] for file in files]
        return others | {"sha256": value_digest(told)}


def opened(dataset: Mapping[str, Any], limit: int) -> Dataset:
    """At most so many samples of a dataset. Raises `StageError` where it cannot be used."""
    path, most = _path(dataset), _limit(dataset, limit)
    what = f"the dataset {path.name} cannot be read"
    hint = "docs/datasets.md shows the forms"
    with failing(quantize_error, what, hint, OSError, ValueError, EOFError, KeyError):
        if path.is_dir():
            form, row, count, digest = _of_folder(path, most)
        else:
            form, row, count, digest = _of_file(path, dataset.get("columns") or {})
        found, seen = _distinct(row, count, digest, most)
    if len(found) < LEAST:
        count_of = f"{len(found)} different sample{'s' * (len(found) != 1)}"
        raise quantize_error(
            f"the dataset {path.name} has {count_of}, at least {LEAST} are needed",
            "calibration, the choice between attempts and the verdict need their own",
        )
    dropped = seen - len(found)
    notice = f"the dataset {path.name}: {dropped} duplicates are left out" if dropped else ""
    return Dataset(path.name, form, found, dataset, notice)


def read(path: Path, limit: int | None = None) -> list[Row]:
    """The first samples of a file of tensors, in their order. Raises `OSError`, `ValueError`,
    `EOFError` or `KeyError`."""
    rows, count = tables.rows(path)
    return [_arrays(rows(index)) for index in range(min(count, limit or count))]


def fitted(given: Row, wanted: Signature, component: str = "") -> Row:
    """The values of a sample that are for a component, in the types of its graph's inputs, of which
    it may lack some."""
    import numpy as np

    prefix = f"{component}/" if component else ""
    own = {name.removeprefix(prefix): value for name, value in given.items()
           if name.startswith(prefix)}  # fmt: skip
    if unknown := set(own) - set(wanted) - set(LABELS):
        raise quantize_error(
            f"the dataset has an array '{min(unknown)}' that is not an input of the model",
            f"its inputs: {listed(wanted)}",
        )
    fitting = {}
    for name, value in own.items():
        if name not in wanted:
            continue
        port = wanted[name]
        with failing(quantize_error, f"the dataset's '{name}' is no {port.dtype}", "", ValueError):
            array = np.asarray(value, dtype=port.dtype)
        if array.ndim == len(port.shape) - 1:
            array = array[None]  # one item
        if not port.fits(array.shape):
            raise quantize_error(
                f"the dataset's '{name}' has the shape {list(array.shape)}, the model takes "
                f"{list(port.shape)}"
            )
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise quantize_error(f"the dataset's '{name}' contains NaN")
        fitting[name] = array
    return fitting


def _path(dataset: Mapping[str, Any]) -> Path:
    path = dataset.get("path")
    if not isinstance(path, str):
        raise quantize_error("the dataset has no path", 'dataset = { path = "calibration.npz" }')
    return Path(path)


def _limit(dataset: Mapping[str, Any], limit: int) -> int:
    return min(int(dataset.get("samples", limit)), limit)


def _mixed(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def _distinct(
    row: Callable[[int], Any], count: int, digest: Callable[[Any], str], most: int
) -> tuple[list[Any], int]:
    """So many different samples out of `count`, and how many were looked at for them."""
    found: dict[str, Any] = {}
    seen = 0
    for index in map(int, _mixed(map(str, range(count)))):
        if len(found) == most:
            break
        seen += 1
        one = row(index)
        found.setdefault(digest(one), one)
    return list(found.values()), seen


def _of_file(path: Path, columns: Mapping[str, str]) -> Rows:
    """The rows of a file, all in one form."""
    rows, count = tables.rows(path)
    if not count:
        raise ValueError("it has no sample")
    first = rows(0)
    roles = _roles(path, first, columns)
    if roles:
        return TEXTS, lambda index: _texts(rows(index), roles, index), count, repr
    return TENSORS, lambda index: _arrays(rows(index)), count, lambda one: parts.digest([one])


def _roles(path: Path, first: Row, columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of texts; empty: the values are tensors."""
    numbers = path.suffix.lower() == ".csv"  # whose cells are all written as texts
    known = {name for names in _COLUMNS.values() for name in names}
    words = [
        column
        for column, value in first.items()
        if (isinstance(value, str) and not (numbers and _number(value)) and column not in LABELS)
        or (value is None and column in known)
    ]
    usual = {
        role: next((one for one in names if one in words), "") for role, names in _COLUMNS.items()
    }
    found = {role: column for role, column in {**usual, **columns}.items() if column}
    if missing := [column for column in found.values() if column not in first]:
        raise quantize_error(
            f"the dataset {path.name} has no column '{missing[0]}'", f"its columns: {listed(first)}"
        )
    if words and not found.keys() & {"text", "question"}:
        raise quantize_error(
            f"the dataset {path.name} has the columns {listed(first)}, none of them known to hold "
            "texts",
            f'columns = {{ text = "{words[0]}" }}',
        )
    return found


def _texts(row: Row, roles: Mapping[str, str], index: int) -> Texts:
    """One text or two."""
    found = {role: row.get(column) for role, column in roles.items()}
    for role, text in found.items():
        if not text or not isinstance(text, str):
            message = f"row {index + 1} has no text in the column '{roles[role]}'"
            raise ValueError(message)
    if "question" in found and "context" in found:
        return str(found["question"]), found["context"]
    first = found.get("text", found.get("question"))
    return str(first), found.get("text_pair", found.get("context"))


def _arrays(row: Row) -> Row:
    import numpy as np

    found = {}
    for name, value in row.items():
        if isinstance(value, str) and not _number(value):
            if name in LABELS:
                continue
            raise ValueError(f"'{value[:40]}' in column '{name}' is neither a number nor a list")
        found[name] = np.asarray(parse_json(value) if isinstance(value, str) else value)
    return found


def _number(text: str) -> bool:
    """Whether a cell holds a number or a list of them."""
    try:
        return isinstance(parse_json(text), int | float | list)
    except ValueError:
        return False


def _files(folder: Path) -> tuple[list[Path], str]:
    """The images or sounds in a folder, in a mixed order, and which of the two they are.

    A link that leads out of the folder is no file of it.
    """
    inside = folder.resolve()
    names: dict[str, list[str]] = {IMAGES: [], SOUNDS: []}
    for place, _folders, files in os.walk(folder, followlinks=False):
        for name in files:
            file = Path(place, name)
            form = _SUFFIXES.get(file.suffix.lower())
            if form and file.resolve().is_relative_to(inside) and file.is_file():
                names[form].append(file.relative_to(folder).as_posix())
    if all(names.values()):
        raise ValueError("it holds both images and sounds")
    if not any(names.values()):
        raise ValueError(f"it holds no {', '.join(_SUFFIXES)} file")
    form = next(form for form, found in names.items() if found)
    return [folder / name for name in _mixed(names[form])], form


def _of_folder(folder: Path, most: int) -> Rows:
    """The files of a folder that are in its key."""
    files, form = _files(folder)
    return form, files.__getitem__, len(files[:most]), lambda file: hash_file(file)[0]


_WIDTHS = {1: "u1", 2: "<i2", 4: "<i4"}
"""Bytes of a value of a sound and its type."""


def picture(file: Path) -> Any:
    """The pixels of an image: height, width, three colors."""
    import numpy as np
    from PIL import Image, ImageOps

    what = f"{file.name} in the dataset cannot be read as an image"
    hint = "leave it out, or save it again as .png"
    with failing(quantize_error, what, hint), Image.open(file) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def sound(file: Path, rate: int, seconds: float) -> Any:
    """The values of the beginning of a sound at a rate, from -1 to 1."""
    import numpy as np

    what = f"{file.name} in the dataset cannot be read as a sound"
    with failing(quantize_error, what, "leave it out, or save it again as .wav (PCM)"):
        with wave.open(str(file), "rb") as stream:
            width, channels = stream.getsampwidth(), stream.getnchannels()
            own = stream.getframerate()
            raw = stream.readframes(math.ceil(seconds * own))
        if width == 3:  # to four bytes, which NumPy has a type for
            parts = np.frombuffer(raw, np.uint8).reshape(-1, 3)
            raw, width = np.insert(parts, 0, 0, axis=1).tobytes(), 4
        values = np.frombuffer(raw, _WIDTHS[width]).reshape(-1, channels).astype(np.float64)
        if not len(values):
            raise ValueError("it is empty")
    values = (values - 128 if width == 1 else values).mean(1) / 2 ** (8 * width - 1)
    count = max(round(len(values) * rate / own), 1)
    if count != len(values):
        values = np.interp(np.arange(count) * own / rate, np.arange(len(values)), values)
    return values.astype(np.float32)
