"""Reads the packed times of runs back (`workers.measure.running.pack`)."""

from __future__ import annotations

import base64
import zlib
from array import array


def unpack(text: str) -> list[int]:
    """Nanoseconds, as they were packed: eight bytes each, the lowest first."""
    values = array("Q")
    values.frombytes(zlib.decompress(base64.b64decode(text, validate=True)))
    return values.tolist()
