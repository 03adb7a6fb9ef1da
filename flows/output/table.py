"""Tables as plain text and as Markdown, and grids of models and targets.

In a file and in CI a table is as wide as its cells. On a terminal that is too narrow for it, each
row becomes a block: its first cell, then the others below, as many on a line as fit. Nothing is cut
off, so every name can still be copied. A grid has models down, targets across and a word for each
cell: what a plan builds, and how a sweep ended. On a narrow terminal the targets are divided into
several grids, one below the other.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from flows.output.quantity import counted, shortened
from matrix.targets import load_targets

MOST_ROWS = 40
"""Models; a grid of more shows those first that are remarkable."""
_SHORTEST_NAME = 16
Marks = Mapping[str, str]
"""A word for each cell, by its id."""


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
    """The lines of one row; a longer one is divided between words, and no name is cut."""
    first, *others = row
    yield first
    lines: list[str] = []
    for cell in filter(None, others):
        if not lines or 4 + len(lines[-1]) + 2 + len(cell) > width:
            lines.append(cell)
        else:
            lines[-1] += f"  {cell}"
    for line in lines:
        yield from textwrap.wrap(
            line, width, initial_indent="    ", subsequent_indent="      ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def plain(text: str) -> str:
    """Escape the text of others: a model id or message must not become markup."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table of texts in Markdown."""
    lines = (f"| {' | '.join(map(plain, row))} |" for row in rows)
    return [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}", *lines]


def grid_lines(
    marks: Marks, good: Iterable[str] = (), *, left_out: str = "", width: int | None = None
) -> Iterator[str]:
    """A grid of several models and targets; nothing for less.

    `good`: the words of cells that count as good, in the totals of each target, and whose models
    come last; `left_out`: the word of cells that do not count. `width`: None: of the terminal.
    """
    table: dict[str, dict[str, str]] = {}
    for cell, mark in marks.items():
        name, _at, label = cell.rpartition("@")
        table.setdefault(name, {})[label] = mark
    columns = _ordered({label for row in table.values() for label in row})
    if len(table) < 2 or len(columns) < 2:
        return
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    fine = {*good, left_out}
    names = sorted(table, key=lambda name: fine.issuperset(table[name].values()) if good else 0)
    rows = [(name, table[name]) for name in names[:MOST_ROWS]]
    if good:
        rows.append(("good", _totals(table.values(), columns, set(good), left_out)))
    short = _without_tasks(names)
    rows = [(short.get(name, name), row) for name, row in rows]
    sizes = {
        label: max(len(label), *(len(row.get(label, "")) for _name, row in rows))
        for label in columns
    }
    room = max(len(name) for name, _row in rows)
    if width is not None:
        beside = width - sum(sizes.values()) - 2 * len(sizes)
        room = min(room, beside if beside >= _SHORTEST_NAME else max(_SHORTEST_NAME, width // 3))
    for number, part in enumerate(_parts(sizes, None if width is None else width - room)):
        if number:
            yield ""
        yield _line(" " * room, [(label, size) for label, size in part.items()])
        for name, row in rows:
            cells = [(row.get(label, ""), size) for label, size in part.items()]
            yield _line(shortened(name, room).ljust(room), cells)
    if more := len(names) - MOST_ROWS if len(names) > MOST_ROWS else 0:
        yield f"... and {counted(more, 'model')}"


def _without_tasks(names: Sequence[str]) -> dict[str, str]:
    """Shorter names, if they are unique."""
    short = {name: name.rpartition(":")[0] or name for name in names}
    return short if len(set(short.values())) == len(short) else {}


def _ordered(labels: Iterable[str]) -> list[str]:
    known = [row.label for row in load_targets().rows]

    def rank(label: str) -> tuple[int, str]:
        target = label.partition(":")[0].partition("+")[0]
        return (known.index(target) if target in known else len(known), label)

    return sorted(labels, key=rank)


def _totals(
    rows: Iterable[Mapping[str, str]], columns: Sequence[str], good: set[str], left_out: str
) -> dict[str, str]:
    listed = list(rows)
    totals = {}
    for label in columns:
        marks = [row[label] for row in listed if row.get(label, left_out) != left_out]
        totals[label] = f"{sum(mark in good for mark in marks)}/{len(marks)}"
    return totals


def _parts(sizes: Mapping[str, int], room: int | None) -> Iterator[dict[str, int]]:
    """The columns that fit beside each other, with their widths."""
    part: dict[str, int] = {}
    for label, size in sizes.items():
        if part and room is not None and sum(part.values()) + 2 * (len(part) + 1) + size > room:
            yield part
            part = {}
        part[label] = size
    yield part


def _line(name: str, cells: Iterable[tuple[str, int]]) -> str:
    return "  ".join([name, *(text.ljust(size) for text, size in cells)]).rstrip()
