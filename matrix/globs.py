"""Globs over cell ids and names: `*`, `?`, `[...]` as in fnmatch, case-sensitive, and `{a,b}`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache

from matrix.errors import UsageError
from matrix.nearest import quote

MAX_ALTERNATIVES = 256


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
    done: list[str] = []
    todo = [pattern]
    while todo:
        item = todo.pop()
        span = _innermost(item)
        if span is None:
            done.append(item)
        else:
            start, end = span
            parts = item[start + 1 : end].split(",")
            todo += [item[:start] + part + item[end + 1 :] for part in reversed(parts)]
        if len(done) + len(todo) > MAX_ALTERNATIVES:
            raise UsageError(
                f"{quote(pattern)} expands to more than {MAX_ALTERNATIVES} patterns",
                hint="give it as several patterns",
            )
    if any("{" in item or "}" in item for item in done):
        raise UsageError(f"{quote(pattern)} has an unmatched brace")
    return done


def _innermost(text: str) -> tuple[int, int] | None:
    end = text.find("}")
    start = text.rfind("{", 0, end) if end >= 0 else -1
    return (start, end) if start >= 0 else None
