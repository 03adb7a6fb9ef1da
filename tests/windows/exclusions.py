"""A plugin of pytest that leaves out what Wine cannot run; `cannot.toml` has the reasons."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Exclusion:
    """Tests that Wine cannot run."""

    tests: tuple[str, ...]
    """Names as pytest has them, with `*`; brackets stand for themselves."""
    reason: str
    known: str
    """How it is known that it is Wine and not us."""

    def leaves_out(self, name: str) -> bool:
        return any(fnmatchcase(name, test.replace("[", "[[]")) for test in self.tests)


def exclusions() -> list[Exclusion]:
    """All of them."""
    text = Path(__file__).with_name("cannot.toml").read_text(encoding="utf-8")
    return [
        Exclusion(tuple(row["tests"]), row["reason"], row["known"])
        for row in tomllib.loads(text)["exclusion"]
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = exclusions()
    for item in items:
        for one in known:
            if one.leaves_out(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=f"Wine: {one.reason}"))
