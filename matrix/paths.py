"""Paths of files in a package or a stage result: the same file, inside it, on every system."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import PureWindowsPath

MAX_COMPONENT = 255
"""Bytes of one path component on every file system that matters."""

MAX_PATH = 1000
"""Characters of a path: what a package's folder is made of must be made, walked and removed."""
MOST_TOLD = 10
_WINDOWS = frozenset('<>:"|?*')
_FORBIDDEN = {
    ".git": "publishing tools leave it out silently",
    ".artifactignore": "it would filter other files out of the package",
}


def path_problem(path: str) -> str | None:
    """A package's file path must mean the same file, inside the package, on every system."""
    if not path:
        return "an empty file path"
    if path.startswith("/"):
        return f"{path!r}: an absolute path"
    if len(path) > MAX_PATH:
        return f"{path[:80]!r}...: a path of {len(path)} characters, more than {MAX_PATH}"
    for part in path.split("/"):
        problem = _component_problem(part)
        if problem:
            return f"{path!r}: {problem}"
    return None


def _component_problem(part: str) -> str | None:
    if part in {"", ".", ".."}:
        return f"the component {part!r} is not a name"
    faults = {
        "a backslash": "\\" in part,
        "a control character": any(unicodedata.category(char) in {"Cc", "Cs"} for char in part),
        "a drive letter or a character that Windows forbids": not _WINDOWS.isdisjoint(part),
        "a component that ends in a dot or a blank (Windows drops it)": part[-1] in ". ",
        f"a component over {MAX_COMPONENT} bytes": len(part.encode(errors="replace"))
        > MAX_COMPONENT,
        f"{part!r} is reserved on Windows": PureWindowsPath(part).is_reserved(),
    }
    if part.casefold() in _FORBIDDEN:
        faults[f"{part!r} is forbidden: {_FORBIDDEN[part.casefold()]}"] = True
    return next((fault for fault, found in faults.items() if found), None)


def path_problems(paths: Iterable[str]) -> list[str]:
    """The problems of all paths together: bad ones, and ones that cannot exist side by side."""
    problems: list[str] = []
    spelled: dict[str, str] = {}
    for path in sorted(paths):
        problem = path_problem(path)
        if problem:
            problems.append(problem)
            continue
        folded = _folded(path)
        if folded in spelled:
            problems.append(f"{path!r} and {spelled[folded]!r} are one file on Windows")
        spelled.setdefault(folded, path)
    for folded, path in spelled.items():
        parts = folded.split("/")
        parents = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        problems.extend(
            f"{spelled[parent]!r} is a file, but {path!r} needs a folder of that name"
            for parent in parents
            if parent in spelled
        )
    if len(problems) > MOST_TOLD:
        problems[MOST_TOLD:] = [f"{len(problems) - MOST_TOLD} more problems of the same kinds"]
    return problems


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
