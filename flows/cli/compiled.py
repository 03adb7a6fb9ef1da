"""What `modelmill compile` prints of files and packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from flows.cli.quantity import show_duration, show_size
from flows.observe.evidence import EMULATED, opening_of
from flows.packages.written import Written

if TYPE_CHECKING:
    from workers.compile.check import Opening
    from workers.compile.files import Compiled

_INDENT = " " * 9


def result_lines(done: Sequence[Compiled | Written]) -> Iterator[str]:
    """For people."""
    for one in done:
        yield from _written_lines(one) if isinstance(one, Written) else _file_lines(one)
    users = [path for one in done for path in one.binaries if not isinstance(one, Written)]
    for path in dict.fromkeys(users):
        if users.count(path) > 1:
            size = show_size(path.stat().st_size)
            yield f"{path.name} ({size}) holds {users.count(path)} graphs"
    sizes = next(
        (one.sharing for one in done if not isinstance(one, Written) and one.sharing), None
    )
    if sizes and (together := sizes["together"]) and (apart := sizes["apart"]):
        yield (
            f"in one context {show_size(together)} with the models, "
            f"in a context for each {show_size(apart)}"
        )
    if failed := sum(bool(one.error) for one in done):
        yield f"{failed} of {len(done)} models failed"


def result_to_json(one: Compiled | Written) -> dict[str, object]:
    """For machines."""
    if isinstance(one, Written):
        return _written_to_json(one)
    return _to_json(one)


def _written_lines(one: Written) -> Iterator[str]:
    if one.error:
        yield f"FAILED   {one.cell}: {one.error}"
        return
    took = f"in {show_duration(one.seconds)}" if one.seconds else "from the store"
    yield f"compiled {one.cell} -> {one.output} {took}"
    for path in one.binaries:
        yield f"{_INDENT}binary {path.name}, {show_size(path.stat().st_size)}"
    names = [rung.name for rung in one.rungs]
    unsure = next((rung for rung in one.rungs if rung.passed is None), None)
    if unsure:
        yield f"{_INDENT}not checked: {unsure.name}: {unsure.detail}"
    elif "loads" in names:
        yield f"{_INDENT}checked: {', '.join(names)}"
    else:
        yield f"{_INDENT}not checked: it was not opened"
    opening = opening_of(one.build_record)
    for model in opening.models if opening else ():
        if model.compiled.seconds is not None and model.portable.seconds is not None:
            after, before = show_duration(model.compiled.seconds), model.portable.seconds
            yield (
                f"{_INDENT}{model.model} opens in {after}; "
                f"the portable model in {show_duration(before)}"
            )
    if opening and opening.emulated:
        yield f"{_INDENT}{EMULATED}"


def _written_to_json(one: Written) -> dict[str, object]:
    opening = opening_of(one.build_record)
    return {
        "cell": one.cell,
        "output": str(one.output) if one.output else None,
        "tree": one.tree or None,
        "binaries": [str(path) for path in one.binaries],
        "seconds": one.seconds,
        "error": one.error or None,
        "checked": one.checked,
        "verification": [asdict(rung) for rung in one.rungs],
        "opening": asdict(opening) if opening else None,
    }


def _file_lines(one: Compiled) -> Iterator[str]:
    if one.error:
        yield f"FAILED   {one.source}: {one.error}"
    elif one.warning:
        yield f"warning  {one.source}: {one.warning}"
    else:
        yield f"compiled {one.source} -> {one.output} in {show_duration(one.seconds)}"
        yield from _details(one)


def _details(one: Compiled) -> Iterator[str]:
    for path in one.binaries:
        yield f"{_INDENT}binary {path.name}, {show_size(path.stat().st_size)}"
    checked = one.checked
    if checked is None:
        yield f"{_INDENT}not checked"
        return
    yield f"{_INDENT}{'checked' if checked.passed else 'not checked'}: {checked.detail}"
    if checked.portable and checked.compiled:
        opens, before = _opening(checked.compiled), _opening(checked.portable)
        yield f"{_INDENT}opens in {opens}; the portable model in {before}"


def _opening(opening: Opening) -> str:
    return f"{show_duration(opening.seconds)} and {show_size(opening.memory)}"


def _to_json(one: Compiled) -> dict[str, object]:
    return {
        "source": str(one.source),
        "output": str(one.output) if one.output else None,
        "binaries": [str(path) for path in one.binaries],
        "seconds": one.seconds,
        "error": one.error or None,
        "warning": one.warning or None,
        "checked": asdict(one.checked) if one.checked else None,
        "sharing": dict(one.sharing) if one.sharing else None,
    }
