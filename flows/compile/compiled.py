"""What `modelmill compile` prints of files and packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from flows.compile.written import Written
from flows.observe.evidence import Side, opening_lines
from flows.output.quantity import show_duration, show_size
from workers.compile.files import Compiled

_INDENT = " " * 9


def result_lines(done: Sequence[Compiled | Written]) -> Iterator[str]:
    """For people."""
    for one in done:
        yield from _lines(one)
    files = [one for one in done if not isinstance(one, Written)]
    users = Counter(path for one in files for path in one.binaries)
    for path, count in users.items():
        if count > 1:
            yield f"{path.name} ({show_size(path.stat().st_size)}) holds {count} graphs"
    if failed := sum(bool(one.error) for one in done):
        yield f"{failed} of {len(done)} models failed"


def result_to_json(one: Compiled | Written) -> dict[str, object]:
    """For machines."""
    told = {**asdict(one), "error": one.error or None}
    if isinstance(one, Written):
        return {**told, "checked": one.checked}
    return told


def _lines(one: Compiled | Written) -> Iterator[str]:
    name = one.cell if isinstance(one, Written) else str(one.source)
    if one.error:
        yield f"FAILED   {name}: {one.error}"
    else:
        took = f"in {show_duration(one.seconds)}" if one.seconds else "from the store"
        yield f"compiled {name} -> {one.output} {took}"
        for path in one.binaries:
            yield f"{_INDENT}binary {path.name}, {show_size(path.stat().st_size)}"
        about = _of_package(one) if isinstance(one, Written) else _of_file(one)
        yield from (f"{_INDENT}{line}" for line in about)


def _of_package(one: Written) -> Iterator[str]:
    names = [rung.name for rung in one.verification]
    unsure = next((rung for rung in one.verification if rung.passed is None), None)
    if unsure:
        yield f"not checked: {unsure.name}: {unsure.detail}"
    elif "loads" in names:
        yield f"checked: {', '.join(names)}"
    else:
        yield "not checked: it was not opened"
    yield from opening_lines(one.opening)


def _of_file(one: Compiled) -> Iterator[str]:
    checked = one.checked
    if checked is None:
        yield "not checked"
        return
    yield f"{'checked' if checked.passed else 'not checked'}: {checked.detail}"
    if checked.portable and checked.compiled:
        opens, before = (
            Side(side.seconds, side.memory) for side in (checked.compiled, checked.portable)
        )
        yield f"opens in {opens}; the portable model in {before}"
