"""Tables as plain text, the same on a terminal, in a file and in CI, and as Markdown."""

from __future__ import annotations

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


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    for row in rows:
        cells = (text.replace("|", "\\|").replace("\n", " ") for text in row)
        lines.append(f"| {' | '.join(cells)} |")
    return lines
