"""The digest of the code that makes the bytes of a stage.

Engines report it among their tools, so it is part of the stage's key: a change of the code is
another key, without a number that somebody has to raise. Standard library only: foreign
interpreters import this module too.
"""

from __future__ import annotations

import ast
import hashlib
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from workers.engine import version

_ROOT = Path(__file__).parent.parent
_ROOM = "workers."
"""What a stage takes from other rooms reaches it as parameters."""
_DATA = (".toml", ".json", ".txt")
_PARSING = threading.Lock()
"""CPython 3.11 counts the recursion of all threads' `ast.parse` together, and raises a SystemError
when two of them overlap."""


@cache
def digest(*names: str) -> str:
    """SHA-256 of these modules' source and of all that they import from `workers`.

    The name of a package stands for all of its files, data included. Without sources (an
    installation of compiled files alone) the version of modelmill takes the place of the digest.
    """
    files = sorted(_closure(names), key=lambda file: file.as_posix())
    if not files:
        return f"modelmill {version('modelmill') or 'without sources'}"
    found = hashlib.sha256()
    for file in files:
        text = file.read_bytes().replace(b"\r\n", b"\n")
        head = f"{file.relative_to(_ROOT).as_posix()} {len(text)}\n"
        found.update(head.encode() + text)
    return found.hexdigest()


def _closure(names: tuple[str, ...]) -> set[Path]:
    """The files of modules and of what they import; empty: a source is missing."""
    found: set[Path] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        files = _files(name) if name in names else _module(name)
        if name in names and not any(file.suffix == ".py" for file in files):
            return set()
        for file in set(files) - found:
            found.add(file)
            pending += _imports(file) if file.suffix == ".py" else ()
    return found


def _files(name: str) -> list[Path]:
    """The files of a module or of a whole package."""
    folder = _ROOT.joinpath(*name.split("."))
    if not folder.is_dir():
        return _module(name)
    return [file for file in folder.rglob("*") if file.suffix in {".py", *_DATA}]


def _module(name: str) -> list[Path]:
    file = _ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return [file] if file.is_file() else []


@cache
def _imports(file: Path) -> tuple[str, ...]:
    """The names in `workers` that a module imports anywhere: modules, or what is in them."""
    return tuple(name for name in _imported(file) if name.startswith(_ROOM))


def _imported(file: Path) -> Iterator[str]:
    with _PARSING:
        tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
