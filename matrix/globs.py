"""Globs over cell ids and names: `*`, `?`, `[...]` as in fnmatch, case-sensitive, and `{a,b}`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from matrix.errors import UsageError
from matrix.nearest import quote

MAX_ALTERNATIVES = 256
_INNERMOST = re.compile(r"\{([^{}]*)\}")


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression that matches whole texts with `match`."""
    return re.compile("|".join(fnmatch.translate(item) for item in expand(pattern)))


def matches(text: str, patterns: Iterable[str]) -> bool:
    """Whether any of the patterns matches all of the text."""
    return any(compiled(pattern).match(text) for pattern in patterns)


def glob_fault(pattern: str) -> str:
    """Why a pattern can match nothing; empty: it can be used."""
    try:
        expand(pattern)
    except UsageError as error:
        return error.message
    return ""


def expand(pattern: str) -> list[str]:
    """The patterns without braces to which a pattern with braces expands."""
    most = MAX_ALTERNATIVES + 1
    done = list(islice(_expanded(pattern), most)) if pattern.count("{") < most else []
    if len(done) == most or not done:
        raise UsageError(
            f"{quote(pattern)} expands to more than {MAX_ALTERNATIVES} patterns",
            hint="give it as several patterns",
        )
    if any("{" in item or "}" in item for item in done):
        raise UsageError(f"{quote(pattern)} has an unmatched brace")
    return done


def _expanded(pattern: str) -> Iterator[str]:
    braces = _INNERMOST.search(pattern)
    if braces is None:
        yield pattern
        return
    for part in braces[1].split(","):
        yield from _expanded(pattern[: braces.start()] + part + pattern[braces.end() :])
