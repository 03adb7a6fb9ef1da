"""What a feed can know before the first byte is sent: all problems of a plan at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Sequence

from feed.layout import STAGE, Layout
from feed.oserrors import feed_errors
from machine.claims import claim
from machine.disk import existing
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


def check_access(layout: Layout) -> None:
    """As far as it can be told without writing: could this user publish here?"""
    with feed_errors("cannot write", layout.root):
        there = existing(layout.root)
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", str(there))


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


def in_lines(title: str, problems: Sequence[str]) -> str:
    """A title with the first problems below it."""
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    return "\n  ".join([title, *problems[:SHOWN], *more])
