"""Starting a module of ours as a process, with our own packages whatever the import path holds."""

from __future__ import annotations

import sys
from pathlib import Path

_MAIN = Path(__file__).resolve().parents[2] / "modelmill" / "__main__.py"


def command(module: str, *arguments: str) -> list[str]:
    """The command line; `-P` keeps the folder of the script off the import path."""
    return [sys.executable, "-P", str(_MAIN), "-m", module, *arguments]
