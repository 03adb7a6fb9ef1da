"""Tables as plain text, the same on a terminal, in a file and in CI, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def render(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns two blanks apart: text aligned left, numbers right, no trailing blanks."""
    cells = [[str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    columns = zip(*rows, strict=True) if rows else [("",)] * len(headers)
    right = [all(isinstance(value, int | float) for value in column) for column in columns]

    def line(values: Sequence[str]) -> str:
        parts = (
            value.rjust(width) if aligned else value.ljust(width)
            for value, width, aligned in zip(values, widths, right, strict=True)
        )
        return "  ".join(parts).rstrip()

    return "\n".join([line(headers), *(line(row) for row in cells)])


_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def plain(text: str) -> str:
    """Escape the text of others: a model id or message must not become markup."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table of texts in Markdown."""
    lines = (f"| {' | '.join(map(plain, row))} |" for row in rows)
    return [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}", *lines]
