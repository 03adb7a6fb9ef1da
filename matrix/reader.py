"""Reads the files that users write, with one line for each fault.

A file is decoded, parsed and then read key by key through an `Entry`, which records problems
instead of raising, so that one run reports them all.
"""

from __future__ import annotations

import json
import math
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from matrix.errors import PlanError, Problem
from matrix.globs import glob_fault
from matrix.nearest import hint, quote, tag

T = TypeVar("T")

MAX_BYTES = 64 << 20
MAX_DEPTH = 32
MAX_INT = 2**63
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: it cannot be encoded."""


def read_text(path: Path, advice: str = "") -> str:
    """The text of a file, UTF-8 with or without a byte order mark. `advice`: if there is none."""
    where = path.name
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) and not path.is_dir():  # a pipe and a device have no end
            fail(where, "is not a file")
        if found.st_size > MAX_BYTES:
            fail(where, f"is larger than {MAX_BYTES >> 20} MiB", "is this the right file?")
        raw = path.read_bytes()
    except FileNotFoundError:
        fail(where, "no such file", advice)
    except (OSError, ValueError) as err:
        fail(where, f"cannot be read: {getattr(err, 'strerror', None) or err}")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw[:4096]:
        fail(where, "is UTF-16 or binary, not UTF-8 text", "save it again as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        fail(where, f"is not UTF-8 (byte {err.start})", "save it again as UTF-8")


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """A TOML document."""
    try:
        return tomllib.loads(text)
    except ValueError as err:  # also for numbers with too many digits
        fail(where, f"is not valid TOML: {err}")
    except RecursionError:
        fail(where, "is nested too deeply")


def parse_json(text: str, where: str) -> Any:
    """A JSON document; duplicate keys, NaN and Infinity are refused."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except ValueError as err:
        fail(where, f"is not valid JSON: {err}")
    except RecursionError:
        fail(where, "is nested too deeply")


def fail(where: str, message: str, advice: str = "") -> NoReturn:
    """Raise the one problem that makes the whole file unreadable."""
    raise PlanError([Problem(where, message, advice)])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"key {quote(twice)} appears twice in one object")
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def plain(value: object, depth: int = 0) -> bool:
    """Whether a value survives JSON unchanged, so that it can be stored and hashed."""
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list):
        parts = value
    else:
        return _plain_scalar(value)
    return depth < MAX_DEPTH and all(plain(part, depth + 1) for part in parts)


def _plain_scalar(value: object) -> bool:
    if isinstance(value, str):
        return _SURROGATE.search(value) is None
    if isinstance(value, int):
        return abs(value) < MAX_INT
    return value is None or (isinstance(value, float) and math.isfinite(value))


class Entry:
    """One table of an input file. A method that finds a fault records it and returns None."""

    def __init__(self, data: Mapping[str, Any], where: str, problems: list[Problem]) -> None:
        self.data = data
        self.where = where
        self.problems = problems
        self.known: list[str] = []

    def bad(self, message: str, advice: str = "") -> None:
        """Record a problem of this entry."""
        self.problems.append(Problem(self.where, message, advice))

    def _get(self, key: str, kind: type | tuple[type, ...], wanted: str) -> Any:
        self.known.append(key)
        if key not in self.data:
            return None
        value = self.data[key]
        # True is an int to Python, not to the author of a catalog.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.bad(f"{key} must be {wanted}, not {quote(value)}")
            return None
        if not plain(value):
            self.bad(f"{key} contains a value that cannot be stored", "dates, nan and inf cannot")
            return None
        return value

    def text(self, key: str, *, required: bool = False, empty: bool = True) -> str | None:
        """A string."""
        value: str | None = self._get(key, str, "a string")
        if value is None:
            if required and key not in self.data:
                self.bad(f"{key} is missing")
            return None
        if not empty and not value.strip():
            self.bad(f"{key} is empty")
            return None
        return value

    def record(self, kind: type[T], **given: Any) -> T:
        """A dataclass: what is not `given` is read under the name of its field, by its type.

        A field without a default must be there, with something in it.
        """
        hints = get_type_hints(kind)
        read = {
            one.name: self._field(one, hints[one.name])
            for one in fields(kind)  # type: ignore[arg-type]  # a dataclass, which no type says
            if one.name not in given
        }
        return kind(**given, **{name: value for name, value in read.items() if value is not None})

    def _field(self, one: Field[Any], hint: Any) -> Any:
        """What the table says of a field; None: its default holds."""
        needed = one.default is MISSING and one.default_factory is MISSING
        if hint is str:
            value: Any = self.text(one.name, required=needed, empty=not needed and not one.default)
        elif get_origin(hint) is Literal:
            value = self.choice(one.name, get_args(hint), required=needed)
        else:
            value = _READERS[hint](self, one.name)
            if needed and one.name not in self.data:
                self.bad(f"{one.name} is missing")
        return _EMPTY.get(hint, "") if needed and value is None else value

    def needed(self, key: str) -> str:
        """A string that must be there, with something in it; empty and a problem if it is not."""
        return self.text(key, required=True, empty=False) or ""

    def choice(self, key: str, valid: tuple[str, ...], *, required: bool = False) -> str | None:
        """One of these strings."""
        value = self.text(key, required=required)
        if value is not None and value not in valid:
            self.bad(f"unknown {key} {quote(value)}", hint(value, valid))
            return None
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of strings; a single string is a list of one."""
        value = self._get(key, (str, list), "a string or a list of strings")
        if value is None or isinstance(value, str):
            return None if value is None else (value,)
        if not all(isinstance(item, str) for item in value):
            self.bad(f"{key} must be a list of strings, not {quote(value)}")
            return None
        return tuple(value)

    def several(
        self, key: str, valid: Collection[str], noun: str = "value"
    ) -> tuple[str, ...] | None:
        """A list of some of these strings."""
        values = self.texts(key)
        for value in values or ():
            if value not in valid:
                self.bad(f"unknown {noun} {quote(value)} in {key}", hint(value, valid))
        return values

    def globs(self, key: str) -> tuple[str, ...] | None:
        """A list of globs."""
        values = self.texts(key)
        for pattern in values or ():
            if problem := glob_fault(pattern):
                self.bad(f"{key}: {problem}")
        return values

    def integer(self, key: str, low: int, high: int) -> int | None:
        """A whole number within bounds."""
        value: int | None = self._get(key, int, "a whole number")
        if value is not None and not low <= value <= high:
            self.bad(f"{key} must be between {low} and {high}, not {value}")
            return None
        return value

    def seconds(self, key: str) -> float | None:
        """A time limit."""
        value = self._get(key, (int, float), "a number of seconds")
        if value is not None and value <= 0:
            self.bad(f"{key} must be more than 0 seconds, not {value}")
            return None
        return None if value is None else float(value)

    def number(self, key: str, low: float = -math.inf, high: float = math.inf) -> float | None:
        """A number within bounds."""
        value = self._get(key, (int, float), "a number")
        if value is not None and not low <= value <= high:
            bound = f"at least {low:g}" if value < low else f"at most {high:g}"
            self.bad(f"{key} must be {bound}, not {value:g}")
            return None
        return None if value is None else float(value)

    def numbers(self, key: str) -> list[float] | None:
        """A list of numbers."""
        value = self._get(key, list, "a list of numbers")
        if value is None or all(type(item) in (int, float) for item in value):
            return None if value is None else [float(item) for item in value]
        self.bad(f"{key} must be a list of numbers, not {quote(value)}")
        return None

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value: bool | None = self._get(key, bool, "true or false")
        return value

    def table(self, key: str) -> dict[str, Any] | None:
        """A table of any content that can be stored."""
        value: dict[str, Any] | None = self._get(key, dict, "a table")
        return value

    def words(self, key: str) -> dict[str, str]:
        """A table of printable strings."""
        table = self.table(key) or {}
        for name, value in table.items():
            if not isinstance(value, str) or not value.isprintable():
                self.bad(f"{key}: {quote(name)} must be a printable string, not {quote(value)}")
        return {name: value for name, value in table.items() if isinstance(value, str)}

    def inner(self, key: str) -> Entry:
        """A table as an entry of its own; an empty one if there is none."""
        return Entry(self.table(key) or {}, f"{self.where}: {key}", self.problems)

    def rows(self, key: str, named: str = "", lines: Sequence[int] = ()) -> list[Entry]:
        """The tables of a list as entries. Messages call each by its number, and by what it has
        under the key `named`.

        `lines`: on which they begin in the file; messages say so if every table has one.
        """
        self.known.append(key)
        given = self.data.get(key, [])
        rows = list(tables(given, f"{self.where}: {key}", self.problems))
        heads = [f"line {one}: " for one in lines] if len(lines) == len(rows) else [""] * len(rows)
        return [
            Entry(
                table, f"{self.where}: {head}{key} {number}{tag(table.get(named))}", self.problems
            )
            for head, (number, table) in zip(heads, rows, strict=True)
        ]

    def existing(
        self, what: str, name: str, folder: Path, *, directory: bool = False, advice: str = ""
    ) -> Path | None:
        """A file (or a folder) that must be there, by its path from `folder`."""
        path = folder / name
        try:
            there = path.is_dir() if directory else path.is_file()
        except (OSError, ValueError):  # a name too long, or one that no file system takes
            there = False
        if not there:
            self.bad(
                f"{what} {quote(name)} does not exist", f"it is looked for in {folder}{advice}"
            )
        return path if there else None

    def unknown(self) -> dict[str, Any]:
        """The items whose keys were not read."""
        return {key: value for key, value in self.data.items() if key not in self.known}

    def close(self) -> None:
        """Record every key that was not read as a problem."""
        for key in self.unknown():
            self.bad(f"unknown key {quote(key)}", hint(key, self.known))


_READERS: Mapping[Any, Callable[[Entry, str], Any]] = {
    bool: Entry.flag,
    float: Entry.number,
    float | None: Entry.number,
    tuple[str, ...]: Entry.texts,
    Mapping[str, str]: Entry.words,
}
"""How a field is read that is neither a text nor a choice."""
_EMPTY: Mapping[Any, Any] = {bool: False, float: 0.0}
"""Stands for a value that is missing, which is a problem; all others are texts."""


def read_rows(
    paths: Iterable[Path], key: str, named: str, problems: list[Problem], advice: str = ""
) -> Iterator[tuple[Path, Entry]]:
    """The tables `key` of TOML files that hold nothing else, each with its file.

    A file that cannot be read is a problem. `advice`: if there is none.
    """
    head = re.compile(rf"\s*\[\[\s*{key}\s*\]\]")
    for path in paths:
        try:
            text = read_text(path, advice)
            top = Entry(parse_toml(text, path.name), path.name, problems)
        except PlanError as error:
            problems += error.problems
            continue
        lines = [number for number, line in enumerate(text.splitlines(), 1) if head.match(line)]
        rows = top.rows(key, named, lines)
        top.close()
        for entry in rows:
            yield path, entry


def tables(
    value: object, where: str, problems: list[Problem]
) -> Iterable[tuple[int, dict[str, Any]]]:
    """The tables of a list of tables, numbered from 1; anything else in it is a problem."""
    if not isinstance(value, list):
        problems.append(Problem(where, f"must be a list of tables, not {quote(value)}"))
        return
    for number, item in enumerate(value, start=1):
        if isinstance(item, dict):
            yield number, item
        else:
            problems.append(Problem(f"{where} {number}", f"must be a table, not {quote(item)}"))
