"""Rows of files: .npz, .jsonl, .csv and .parquet."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from machine.installation import packages
from matrix.codec import parse_json
from workers.sources.errors import quantize_error

_MOST_ROWS = 100_000
"""Of a file; further ones are not looked at."""
Row = dict[str, Any]


def rows(path: Path) -> tuple[Callable[[int], Row], int]:
    """The rows of a file, and how many there are. Raises `OSError`, `ValueError` or `EOFError`."""
    match path.suffix.lower():
        case ".npz":
            return _npz(path)
        case ".jsonl":
            return _jsonl(path)
        case ".csv":
            return _csv(path)
        case ".parquet":
            return _parquet(path)
    raise ValueError("a dataset is a .npz, .jsonl, .csv or .parquet file, or a folder")


def _npz(path: Path) -> tuple[Callable[[int], Row], int]:
    import numpy as np

    stacked: Row = {}
    # Opened here because NumPy leaves a file open that is not an archive.
    with path.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError("it is not a .npz archive")
        stream.seek(0)
        try:
            with np.load(stream, allow_pickle=False) as arrays:
                for name in arrays.files:
                    stacked[name] = arrays[name]
        except (zipfile.BadZipFile, ValueError) as error:
            raise ValueError("it has an array that does not hold plain numbers") from error
    counts = {len(array) if array.ndim else 0 for array in stacked.values()}
    if len(counts) != 1 or 0 in counts:
        raise ValueError("its arrays need the same number of samples along their first axis")
    return lambda index: {name: one[index, ...] for name, one in stacked.items()}, counts.pop()


@contextmanager
def _text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as stream:
            yield stream
    except UnicodeDecodeError as error:
        raise ValueError("it is not a text in UTF-8") from error


def _jsonl(path: Path) -> tuple[Callable[[int], Row], int]:
    with _text(path) as stream:
        lines = list(islice(filter(str.strip, stream), _MOST_ROWS))

    def row(index: int) -> Row:
        try:
            found = parse_json(lines[index])
        except ValueError as error:
            raise ValueError(f"line {index + 1} is no JSON") from error
        if isinstance(found, dict):
            return found
        raise ValueError(f"line {index + 1} is not an object")

    return row, len(lines)


def _csv(path: Path) -> tuple[Callable[[int], Row], int]:
    with _text(path, newline="") as stream:
        try:
            lines = list(islice(csv.DictReader(stream, strict=True), _MOST_ROWS))
        except csv.Error as error:
            raise ValueError(str(error)) from error

    def row(index: int) -> Row:
        if None in lines[index] or None in lines[index].values():
            raise ValueError(f"row {index + 1} has fewer or more cells than the first line")
        return lines[index]

    return row, len(lines)


def _parquet(path: Path) -> tuple[Callable[[int], Row], int]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise quantize_error(
            f"the dataset {path.name} needs pyarrow, which this interpreter lacks",
            f"{packages('install', 'pyarrow')}, or save it as .jsonl",
        ) from None
    try:
        table = parquet.read_table(path).slice(0, _MOST_ROWS)
    except ArrowException as error:
        raise ValueError(str(error)) from error
    return lambda index: dict(table.slice(index, 1).to_pylist()[0]), table.num_rows
