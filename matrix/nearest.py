"""What the user may have meant: the hint of every message about an unknown name."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

SHOWN = 12
LONGEST = 80

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = LONGEST


def quote(value: object) -> str:
    """A value for a message: one printable line of limited length."""
    if isinstance(value, str):
        return SHORT.repr(value) if value.isprintable() else ascii(value)[:LONGEST]
    try:
        text = SHORT.repr(value)
    except (ValueError, RecursionError):  # a number with more digits than Python prints
        return f"a {type(value).__name__} too large to print"
    return text if text.isprintable() else ascii(text)


def tag(value: object) -> str:
    """` (NAME)` for an entry that has a name, so that a message says more than its number."""
    return f" ({quote(value)[1:-1]})" if isinstance(value, str) and value else ""


def near(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """A question about the nearest valid names; empty where nothing is near."""
    folded: dict[str, str] = {}
    for choice in choices:
        folded.setdefault(choice.casefold(), choice)
    found = difflib.get_close_matches(name[:200].casefold(), folded, n=3, cutoff=cutoff)
    return "did you mean " + " or ".join(folded[item] for item in found) + "?" if found else ""


def hint(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """The nearest valid names, or the valid names themselves where nothing is near."""
    valid = list(choices)
    if meant := near(name, valid, cutoff):
        return meant
    if not valid:
        return "there is none to choose from"
    more = f", ... ({len(valid)} in all)" if len(valid) > SHOWN else ""
    return "valid: " + ", ".join(valid[:SHOWN]) + more
