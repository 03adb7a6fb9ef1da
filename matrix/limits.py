"""What a feed takes: how names may look and how many versions fit. Every feed declares its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from matrix.nearest import quote


@dataclass(frozen=True, slots=True)
class NameRule:
    """How a name may look."""

    pattern: re.Pattern[str]
    """The groups that it captures are numbers."""
    form: str
    """The pattern in words, after "must be"."""
    longest: int
    largest: int | None = None
    """The largest number that a captured group may be."""

    def problem(self, what: str, name: str) -> str | None:
        """Why the feed would refuse the name; None: it would not."""
        if len(name) > self.longest:
            return f"{what} {quote(name)} is longer than {self.longest} characters"
        match = self.pattern.fullmatch(name)
        if not match:
            return f"{what} {quote(name)} must be {self.form}"
        largest = self.largest
        if largest is not None and any(int(part) > largest for part in match.groups()):
            return f"{what} {quote(name)} has a number above {largest}"
        return None


@dataclass(frozen=True, slots=True)
class Limits:
    """The rules of one feed."""

    package: NameRule
    version: NameRule
    versions: int
    """Of one package, over all time: deleted ones count."""

    def package_problem(self, name: str) -> str | None:
        """Why the feed would refuse a package of that name."""
        return self.package.problem("package", name)

    def version_problem(self, version: str) -> str | None:
        """Why the feed would refuse that version."""
        return self.version.problem("version", version)
