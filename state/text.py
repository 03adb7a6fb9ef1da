"""Makes any output of a tool storable: no NULs, no lone surrogates, no megabytes unless packed."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from matrix.codec import parse_json
from state.damage import damaged

MESSAGE_LENGTH = 4_000
LOG_LENGTH = 16_000
JSON_STRING_LENGTH = 8_000
JSON_DEPTH = 20
MOST_UNPACKED = 2**30
"""Bytes of packed JSON once it is unpacked; more is damage."""
_CUT = " [...] "


def clean(text: str | None, length: int = MESSAGE_LENGTH, *, tail: bool = False) -> str | None:
    """`text` without what PostgreSQL or UTF-8 refuse, cut at its end if it is too long.

    `tail`: cut at its beginning, because a log says at its end what happened.
    """
    text = None if text is None else _storable(text)
    if text is None or len(text) <= length:
        return text
    kept = length - len(_CUT)
    return _CUT + text[-kept:] if tail else text[:kept] + _CUT


def columns_of(record: object, *names: str) -> dict[str, Any]:
    """Fields of a record as their columns hold them; `state.rows.records` is the way back."""
    return {name: _in_column(getattr(record, name)) for name in names}


def _in_column(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, datetime):
        return value.timestamp()
    return dict(value) if isinstance(value, Mapping) else value


def to_json(value: Any) -> str:
    """JSON that every database accepts, whatever `value` holds."""
    return json.dumps(_plain(value, JSON_DEPTH), separators=(",", ":"), ensure_ascii=False)


def stable_json(value: Mapping[str, Any]) -> str:
    """JSON in which equal values are equal text."""
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"))


def _storable(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean(value, JSON_STRING_LENGTH)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth and isinstance(value, Mapping):
        return {_storable(str(key)): _plain(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [_plain(item, depth - 1) for item in value]
    return clean(str(value), JSON_STRING_LENGTH)


def packed(raw: Mapping[str, Any]) -> bytes:
    """JSON in as few bytes as may be."""
    return zlib.compress(json.dumps(dict(raw), separators=(",", ":")).encode(), 9)


def unpacked(packed: bytes, where: str) -> Mapping[str, Any]:
    """JSON that was packed, within limits."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(packed, MOST_UNPACKED)
        found = parse_json(text)
    except (zlib.error, TypeError, ValueError):  # also for text in place of bytes
        found = None
    if not isinstance(found, dict):
        raise damaged(where)
    return found
