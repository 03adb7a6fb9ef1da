"""The dataclasses of `workers.engine` as JSON values and back, by the types of their fields.

Standard library only: the child may run in an interpreter that lacks our dependencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """As it crosses the pipe; functions stay on their side."""
    if is_dataclass(value):
        values = {one.name: getattr(value, one.name) for one in fields(value)}
        return {name: to_json(item) for name, item in values.items() if not callable(item)}
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def from_json(value: Mapping[str, Any], kind: type[T]) -> T:
    """The dataclass on the other side."""
    types = get_type_hints(kind)
    return kind(**{name: _typed(item, types[name]) for name, item in value.items()})


def _typed(value: Any, kind: Any) -> Any:
    if isinstance(kind, UnionType):  # `KIND | None`
        (kind,) = (one for one in get_args(kind) if one is not type(None))
        return None if value is None else _typed(value, kind)
    if is_dataclass(kind):
        return from_json(value, cast("type[Any]", kind))
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return kind(value)
    if get_origin(kind) is Sequence:
        return tuple(_typed(item, get_args(kind)[0]) for item in value)
    if get_origin(kind) is Mapping:
        return {name: _typed(item, get_args(kind)[1]) for name, item in value.items()}
    return value
