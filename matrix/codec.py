"""Dataclasses as JSON values and back, by the types of their fields: a new field needs no code.

msgspec is imported on first use: commands that read no record start without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def to_json(value: object) -> Any:
    """A dataclass, or anything made of dataclasses, as dicts, lists and plain values."""
    import msgspec

    return msgspec.to_builtins(value)


def parse_json(data: bytes | str) -> Any:
    """A JSON value. Raises `ValueError` for anything else, also if it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def from_json(value: object, kind: type[T], *, exact: bool = True, strict: bool = True) -> T:
    """What `to_json` was given; values that are instances already are taken as they are.

    Raises `ValueError` with the path of the first value of a wrong type and, if `exact`, with
    the path of a key that no field has. Unless `strict`, 0 and 1 are truth values too.
    """
    import msgspec

    made = msgspec.convert(value, kind, strict=strict)
    if exact and (unknown := next(_unknown(value, made), None)):
        raise ValueError(f"Object contains unknown field - at `{unknown}`")
    return made


def from_versioned(data: bytes, kind: type[T], known: int) -> T:
    """A dataclass from the text of a JSON object that says its `format`; its other keys may be
    more than the fields.

    Raises `ValueError` for anything else, or for another format than the known one.
    """
    try:
        value = parse_json(data)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    found = value.get("format") if isinstance(value, dict) else type(value).__name__
    if found != known:
        raise ValueError(f"format {found!r}, this modelmill reads {known}")
    return from_json(value, kind, exact=False)


def _unknown(given: Any, made: Any, at: str = "$") -> Iterator[str]:
    if isinstance(given, dict):
        inside = made if isinstance(made, dict) else _values(made)
        for name, value in given.items():
            if name in inside:
                yield from _unknown(value, inside[name], f"{at}.{name}")
            else:
                yield f"{at}.{name}"
    elif isinstance(given, list):
        for place, (one, other) in enumerate(zip(given, made, strict=True)):
            yield from _unknown(one, other, f"{at}[{place}]")


def _values(made: Any) -> dict[str, Any]:
    return {one.name: getattr(made, one.name) for one in fields(made)}
