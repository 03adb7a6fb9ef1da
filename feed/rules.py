"""What feeds accept: the strictest limits of names and versions, and the rules of paths and views.

A function returns the problem in plain words, or None: a caller can collect all problems before it
refuses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PureWindowsPath

from feed.errors import Rejected
from matrix.digest import SHA256, FileEntry
from matrix.naming import Limits, NameRule

_NUMBER = r"(?:0|[1-9][0-9]*)"
_IDENTIFIER = rf"(?:{_NUMBER}|[0-9]*[a-z-][0-9a-z-]*)"

STRICTEST = Limits(
    package=NameRule(
        "package",
        re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*"),
        "lower-case letters and digits, in segments joined by a single '-', '_' or '.'",
        longest=255,
    ),
    version=NameRule(
        "version",
        re.compile(
            rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-{_IDENTIFIER}(?:\.{_IDENTIFIER})*)?"
        ),
        "lower-case SemVer 2.0 without build metadata and without leading zeros in its numbers",
        longest=127,
        largest=2147483647,
    ),
    versions=5000,
)
"""Azure Artifacts has the strictest limits of all known feeds. A feed without limits of its own
declares these, so that whatever it holds can move to any other feed."""

MAX_COMPONENT = 255
"""Bytes of one path component on every file system that matters."""

MAX_PATH = 1000
"""Characters of a path: what a package's folder is made of must be made, walked and removed."""
MOST_TOLD = 10

_VIEW = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_WINDOWS = frozenset('<>:"|?*')
_FORBIDDEN = {
    ".git": "publishing tools leave it out silently",
    ".artifactignore": "it would filter other files out of the package",
}


def view_problem(view: str) -> str | None:
    """Views are words; `Local` is every feed's implicit view of everything."""
    if not _VIEW.fullmatch(view):
        return f"view {view!r}: letters, digits, '.', '_' and '-', at most 64, alphanumeric ends"
    if PureWindowsPath(view).is_reserved():
        return f"view {view!r}: the name is reserved on Windows"
    if view.casefold() == "local":
        return f"view {view!r}: it holds every version already"
    return None


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


def entry_problems(entries: Sequence[FileEntry]) -> list[str]:
    """The problems of a package's file list."""
    problems = path_problems(entry.path for entry in entries)
    problems.extend(
        f"{entry.path!r}: not a size and a SHA-256"
        for entry in entries
        if entry.size < 0 or not SHA256.fullmatch(entry.sha256)
    )
    return problems


def matching(entries: Iterable[FileEntry], patterns: Iterable[str]) -> tuple[FileEntry, ...]:
    """The files whose path matches a pattern."""
    patterns = tuple(patterns)
    return tuple(e for e in entries if any(fnmatchcase(e.path, p) for p in patterns))


def check_publish(limits: Limits, package: str, version: str, entries: Sequence[FileEntry]) -> None:
    """Refuse a version before a byte is sent. Raises `Rejected` with all problems."""
    named = (limits.package.problem(package), limits.version.problem(version))
    problems = [found for found in named if found]
    if not entries:
        problems.append("a version needs at least one file")
    problems += entry_problems(entries)
    if problems:
        raise Rejected(f"{package} {version}: " + "; ".join(problems))


def headroom_problems(
    limits: Limits, plan: Sequence[tuple[str, str]], taken: Callable[[str], Collection[str]]
) -> list[str]:
    """Packages without room for their new versions. `taken`: the versions of a package."""
    wanted: dict[str, set[str]] = {}
    for package, version in plan:
        if not limits.package.problem(package):
            wanted.setdefault(package, set()).add(version)
    problems = []
    for package, versions in wanted.items():
        held = taken(package)
        new = len(versions.difference(held))
        if new and len(held) + new > limits.versions:
            problems.append(
                f"{package}: {new} new versions do not fit, "
                f"{len(held)} of {limits.versions} are taken"
            )
    return problems
