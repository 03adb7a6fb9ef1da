"""What feeds accept: the strictest limits of names and versions, and the rules of views.

A function returns the problem in plain words, or None: a caller can collect all problems before it
refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PureWindowsPath

from feed.errors import Rejected
from matrix.digest import SHA256, FileEntry
from matrix.naming import Limits, NameRule
from matrix.paths import path_problems

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

_VIEW = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def view_problem(view: str) -> str | None:
    """Views are words; `Local` is every feed's implicit view of everything."""
    if not _VIEW.fullmatch(view):
        return f"view {view!r}: letters, digits, '.', '_' and '-', at most 64, alphanumeric ends"
    if PureWindowsPath(view).is_reserved():
        return f"view {view!r}: the name is reserved on Windows"
    if view.casefold() == "local":
        return f"view {view!r}: it holds every version already"
    return None


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
