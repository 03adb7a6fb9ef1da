"""Text files that the user asked for: replaced as a whole, or one line says why not."""

from __future__ import annotations

from pathlib import Path

from machine.disk import reason
from machine.files import replace_file
from matrix.errors import UsageError


def replace_text(path: Path, text: str, *, hint: str) -> None:
    """Write a file. `hint` says how to choose another place."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason(error)}", hint=hint) from None
