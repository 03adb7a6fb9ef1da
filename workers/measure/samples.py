"""Packed times of runs: nanoseconds as text that a database or JSON keeps in two bytes each."""

from __future__ import annotations

import base64
import binascii
import sys
import zlib
from array import array
from collections.abc import Sequence

_MOST = 64 * 1024 * 1024


def pack(nanoseconds: Sequence[int]) -> str:
    """Times of runs as text."""
    values = array("Q", nanoseconds)
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(zlib.compress(values.tobytes(), 9)).decode("ascii")


def unpack(text: str) -> list[int]:
    """What `pack` was given. Raises `ValueError` for anything else."""
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(base64.b64decode(text, validate=True), _MOST)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the samples cannot be unpacked: {error}") from None
    if not unpacker.eof or len(content) % 8:
        raise ValueError("the samples cannot be unpacked: they are cut off")
    values = array("Q")
    values.frombytes(content)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
