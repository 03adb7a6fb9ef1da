"""What a feed can know before the first byte is sent: all problems of a plan at once."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from feed.errors import Rejected
from feed.layout import STAGE, Layout
from feed.oserrors import feed_errors
from machine.claims import claim
from matrix.limits import Limits

SHOWN = 20


def check_writable(layout: Layout) -> None:
    """Make the feed if it is new, and prove that this user can write to it."""
    with feed_errors("cannot write", layout.root):
        layout.create()
        probe = layout.tmp / f"{STAGE}{claim()}"
        probe.touch()
        probe.unlink()
        for folder in (layout.packages, layout.root / "blobs" / "sha256"):
            folder.mkdir(parents=True, exist_ok=True)


def existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    return next(one for one in (path, *path.parents) if one.exists())


def check_access(layout: Layout) -> None:
    """As far as it can be told without writing: could this user publish here?"""
    with feed_errors("cannot write", layout.root):
        there = existing(layout.root)
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", str(there))


def plan_problems(limits: Limits, plan: Sequence[tuple[str, str]]) -> list[str]:
    """Bad names, bad versions and versions that are planned twice; no feed is asked."""
    packages = dict.fromkeys(package for package, _ in plan)
    problems = [problem for name in packages if (problem := limits.package_problem(name))]
    problems += [
        f"{package} {problem}"
        for package, version in plan
        if (problem := limits.version_problem(version))
    ]
    problems += [
        f"{package} {version}: planned {count} times"
        for (package, version), count in Counter(plan).items()
        if count > 1
    ]
    return problems


def headroom_problems(
    limits: Limits,
    plan: Sequence[tuple[str, str]],
    taken: Callable[[str], Collection[str]],
) -> list[str]:
    """Packages without room for their new versions. `taken`: the versions of a package."""
    wanted: dict[str, set[str]] = {}
    for package, version in plan:
        if not limits.package_problem(package):
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


def refuse(problems: Sequence[str], feed: str) -> None:
    """One error for all problems, if there are any."""
    if problems:
        raise Rejected(in_lines(f"{feed} would refuse the plan:", problems))


def in_lines(title: str, problems: Sequence[str]) -> str:
    """A title with the first problems below it."""
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    return "\n  ".join([title, *problems[:SHOWN], *more])
