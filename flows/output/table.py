"""Tables as plain text and as Markdown.

In a file and in CI a table is as wide as its cells. On a terminal that is too narrow for it, each
row becomes a block: its first cell, then the others below, as many on a line as fit. Nothing is cut
off, so every name can still be copied.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence


def render(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None
) -> str:
    """Columns two blanks apart: text aligned left, numbers right, no trailing blanks.

    `width`: the columns of text that there are; None: those of the terminal, if there is one.
    """
    cells = [[str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        lines = textwrap.wrap(", ".join(filter(None, headers)), width)
        return "\n".join([*lines, *(line for row in cells for line in _block(row, width))])
    columns = zip(*rows, strict=True) if rows else [("",)] * len(headers)
    right = [all(isinstance(value, int | float) for value in column) for column in columns]

    def line(values: Sequence[str]) -> str:
        parts = (
            value.rjust(width) if aligned else value.ljust(width)
            for value, width, aligned in zip(values, widths, right, strict=True)
        )
        return "  ".join(parts).rstrip()

    return "\n".join([line(headers), *(line(row) for row in cells)])


def _block(row: Sequence[str], width: int) -> Iterator[str]:
    """The lines of one row; a cell that is wider than they are is not cut."""
    first, *others = row
    yield first
    line = ""
    for cell in filter(None, others):
        if line and len(line) + 2 + len(cell) > width:
            yield line
            line = ""
        line = f"{line}  {cell}" if line else f"    {cell}"
    if line:
        yield line


_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def plain(text: str) -> str:
    """Escape the text of others: a model id or message must not become markup."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table of texts in Markdown."""
    lines = (f"| {' | '.join(map(plain, row))} |" for row in rows)
    return [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}", *lines]
