"""Plain text tables, the same on a terminal, in a file and in CI."""

from __future__ import annotations

from collections.abc import Sequence


def render(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns two blanks apart: text aligned left, numbers right, no trailing blanks."""
    cells = [[str(value) for value in row] for row in rows]
    widths = [
        max([len(header), *(len(row[index]) for row in cells)])
        for index, header in enumerate(headers)
    ]
    right = [
        bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        for index in range(len(headers))
    ]

    def line(values: Sequence[str]) -> str:
        parts = (
            value.rjust(width) if aligned else value.ljust(width)
            for value, width, aligned in zip(values, widths, right, strict=True)
        )
        return "  ".join(parts).rstrip()

    return "\n".join([line(headers), *(line(row) for row in cells)])
