"""Compiled packages that are written into a folder instead of being published, and what is printed
of these and of compiled files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from flows.observe.evidence import Opening, Side, opening_lines, opening_of
from flows.output.quantity import show_duration, show_size
from flows.packages.builder import attester_of, open_builder, verifying
from flows.packages.published import fetch_portable
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.files import move, remove_tree, temporary_folder
from matrix.errors import MillError, UsageError
from matrix.model import Cell, Plan
from matrix.verification import Rung
from workers.attest.attester import Attester
from workers.build.builder import Builder
from workers.build.built import Built
from workers.build.origin import PACKAGE
from workers.compile.files import Compiled
from workers.compile.group import STAGE
from workers.host.watch import Watching
from workers.verify.verifier import Verifier, VerifyFailed

_INDENT = " " * 9


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one compiled cell."""

    cell: str
    output: Path | None = None
    tree: str | None = None
    seconds: float = 0.0
    """Of compiling; 0 where the result was there already."""
    binaries: tuple[Path, ...] = ()
    verification: tuple[Rung, ...] = ()
    opening: Opening | None = None
    error: str = ""

    @property
    def checked(self) -> bool | None:
        """Whether it holds what its verification demands; None: it could not be judged."""
        verdicts = {rung.passed for rung in self.verification}
        return False if False in verdicts else None if None in verdicts or not verdicts else True


def write_packages(
    plan: Plan,
    settings: Settings,
    dest: Path,
    source: Path | None,
    overwrite: bool,
    progress: Callable[[str], None],
) -> Iterator[Written]:
    """Make every cell of a plan into `dest/PACKAGE/TARGET+PROFILE`, in a home that is removed
    again. `source`: a portable package that was pulled; None: those of the feed, with what this
    machine's store has made of them already."""
    cells = list(plan.cells())
    there = [str(_place(dest, cell)) for cell in cells if _place(dest, cell).exists()]
    if there and not overwrite:
        text = f"{', '.join(there[:3])} is there already"
        raise UsageError(text, hint="add --overwrite, or choose -o")
    store = Workspace(settings).store
    fetch = partial(_copy, source) if source else partial(fetch_portable, settings)
    with ExitStack() as opened:
        home = opened.enter_context(temporary_folder("modelmill-compile-"))
        shared = str(store) if store.is_dir() and not source else None
        settings = replace(settings, home=str(home), store=shared)
        builder = opened.enter_context(open_builder(plan, settings, fetch))
        verifier = opened.enter_context(verifying(settings))
        attester = attester_of(settings, builder, verifier.runtimes)
        for cell in cells:
            progress(f"compiling {cell.id}")
            try:
                output, limit = _place(dest, cell), settings.timeout
                yield _write(cell, output, builder, verifier, attester, limit)
            except MillError as error:
                yield Written(cell.id, error=str(error))


def _write(
    cell: Cell, output: Path, builder: Builder, verifier: Verifier, attester: Attester, limit: float
) -> Written:
    built = builder.build(cell)
    try:
        built = attester.attest(_verified(built, verifier, limit), cell)
        old = output.with_name(f".{output.name}.old")
        remove_tree(old)
        if output.exists():
            move(output, old)
        try:
            built.move_to(output)
        except BaseException:
            if old.exists() and not output.exists():
                move(old, output)
            raise
        remove_tree(old)
    finally:
        built.release()
    runs = [run for run in built.stages if run.stage == STAGE]
    return Written(
        cell=cell.id,
        output=output,
        tree=built.tree,
        seconds=round(sum(run.seconds for run in runs if not run.reused), 3),
        binaries=tuple(_binaries(built, output)),
        verification=built.evidence,
        opening=opening_of(built.build_record),
    )


def _verified(built: Built, verifier: Verifier, limit: float) -> Built:
    """With its evidence. A result that could not be judged is written too, and reported as such."""
    try:
        return verifier.verify(built, Watching(limit))
    except VerifyFailed as error:
        if any(rung.passed is False for rung in error.built.evidence):
            raise
        return error.built


def _binaries(built: Built, output: Path) -> Iterator[Path]:
    for stage in built.manifest["stages"]:
        if stage["stage"] == STAGE:
            below = output / stage["component"] if stage["component"] else output
            yield from (below / name for name in stage["facts"].get("binaries", ()))


def _copy(source: Path, _cell: Cell, folder: Path) -> None:
    """From a folder that was pulled. Its export is there only if the package holds it."""
    shutil.copytree(source, folder / PACKAGE)


def _place(dest: Path, cell: Cell) -> Path:
    precision = "" if cell.policy.default else f"-{cell.policy.precision}"
    return dest / cell.package / f"{cell.column}{precision}"


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
