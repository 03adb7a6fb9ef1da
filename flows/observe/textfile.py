"""Text files that are replaced as a whole: a reader sees the old one or the new one, never half."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from matrix.errors import Exit, MillError


class Unwritable(MillError):
    """A file that was asked for cannot be written where it should go."""

    exit_code = Exit.USAGE


def replace_text(path: Path, text: str, *, hint: str) -> None:
    """Write beside it, then rename. `hint` says how to choose another place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        half = Path(name)
        try:
            with os.fdopen(number, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            half.chmod(0o644)
            half.replace(path)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {error.strerror}", hint=hint) from None
