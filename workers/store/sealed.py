"""Records that vouch for themselves: a damaged one is no record, whatever it still looks like."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def seal(value: Any) -> bytes:
    """A JSON value with the digest of its text."""
    # Read back first: the digest is of what a reader gets (names of fields are text then).
    plain = json.loads(json.dumps(value))
    return json.dumps({"sha256": _digest(plain), "value": plain}, sort_keys=True).encode()


def unseal(data: bytes) -> Any:
    """The value. Raises `ValueError` for bytes that are not as `seal` wrote them."""
    try:
        found = json.loads(data)
        if _digest(found["value"]) == found["sha256"]:
            return found["value"]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("not a sealed record") from error
    raise ValueError("a record that was changed")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
