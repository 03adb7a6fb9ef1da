"""Files hashed, and replaced as a whole."""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

CHUNK = 1 << 20


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, piece by piece."""
    with path.open("rb", buffering=0) as file:
        while block := file.read(CHUNK):
            yield block


def replace_file(
    path: Path, data: bytes, *, sync: bool = False, beside: Path | None = None
) -> None:
    """Give a file these bytes, all or none: readers see the old ones or the new ones.

    The folder is made if need be. `beside`: where the new file is written until it is complete,
    on the same volume (None: in the same folder).
    """
    half = (beside or path.parent) / f".{path.name}.{uuid.uuid4().hex[:12]}"
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with half.open("xb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        half.replace(path)
    except BaseException:
        with suppress(OSError):
            half.unlink()
        raise


def hash_file(path: Path, copy: Path | None = None) -> tuple[str, int]:
    """SHA-256 and size in one read; with `copy` the bytes are written there on the way, flushed."""
    digest = hashlib.sha256()
    size = 0
    with copy.open("xb") if copy else nullcontext() as writer:
        for block in blocks(path):
            digest.update(block)
            size += len(block)
            if writer is not None:
                writer.write(block)
        if writer is not None:
            writer.flush()
            os.fsync(writer.fileno())
    return digest.hexdigest(), size


def long_path(path: Path) -> Path:
    """The same place without Windows' limit of 260 characters and its reserved names."""
    path = path.resolve()
    if sys.platform == "win32":
        text = str(path)
        if text.startswith("\\\\?\\"):
            return path
        return Path("\\\\?\\UNC" + text[1:] if text.startswith("\\\\") else "\\\\?\\" + text)
    return path
