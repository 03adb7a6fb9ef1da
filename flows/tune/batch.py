"""The tunings of one command: named, recorded, and run one after another on this machine."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path

from flows.packages.builder import open_builder
from flows.plan.planning import plan_of
from flows.plan.recorded import TUNING
from flows.settings.engines import check_engine
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.tune.conclusion import conclude
from flows.tune.knowledge import load_knowledge
from flows.tune.ordering import check_space
from flows.tune.place import Shown
from flows.tune.record import Kept, Recorded, Tuning, planned, recorded
from flows.tune.workplace import Workplace, settings_for
from machine.files import temporary_folder
from machine.locks import locked_now
from matrix.catalog import packaged
from matrix.cellid import model_fault
from matrix.codec import to_json
from matrix.digest import value_digest
from matrix.errors import Unusable, UsageError
from matrix.model import Plan
from matrix.nearest import quote
from matrix.slugs import slug
from matrix.space import chosen, read_space, shipped
from matrix.toml import as_toml
from matrix.trials import TuningStatus
from state.reading import StateReader
from state.records import Lease, SweepInfo
from state.state import State
from state.tunings import TuningRow

LEAST_SESSIONS = 3
CATALOGS = (".toml", ".json")
TEMPLATE = "modelmill-tuning-{model}"
"""The packages of what a fleet builds for tunings, unless the user names others."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asks for."""

    what: str
    """A catalog, or a model as `ID` or `ID:TASK`."""
    name: str = ""
    """Empty: made from the date and `what`."""
    space: tuple[Path, ...] = ()
    """Files of hypotheses beside those that come with modelmill."""
    only: tuple[str, ...] = ()
    min_gain: float = 5.0
    """Percent."""
    seed: int | None = None


def begin(settings: Settings, state: State, order: Order) -> str:
    """Plan and record all tunings; returns their name. All faults of the input are found here."""
    check_engine(settings)
    return _named(state, order, _rows(settings, order, portable_plan(settings, order.what)))


def begin_shared(settings: Settings, state: State, order: Order) -> tuple[Plan, Settings]:
    """The same for a fleet: the plan by which its machines build, and its settings.

    The name of the tunings is the stamp of what is built for them, in packages of their own.
    """
    _check_name(order)
    name = order.name or _free_name(state, order)
    package = TEMPLATE if settings.origin("package") == "default" else settings.package
    settings = replace(settings, stamp=name, package=package)
    plan = portable_plan(settings, order.what, bench=True, no_publish=settings.no_publish)
    if state.find_sweep(name) is not None:
        raise UsageError(f"there is a sweep called {name} already", hint="give another --name")
    _named(state, replace(order, name=name), _rows(settings, order, plan))
    return plan, replace(settings, bench=True, compile=(), champions=None)


def _rows(settings: Settings, order: Order, plan: Plan) -> list[TuningRow]:
    protocol = settings.protocol
    protocol.check()
    if protocol.sessions < LEAST_SESSIONS:
        raise UsageError(
            f"--sessions: a comparison has at least {LEAST_SESSIONS}",
            hint="chance cannot be ruled out with fewer",
        )
    work = Workspace(settings)
    space = chosen(read_space([*shipped(), *order.space], work.targets()), order.only)
    load_knowledge(work.knowledge)
    cells = [one for one in plan.cells() if one.skip is None and not one.members]
    check_space(space, sorted({one.target.label for one in cells}))
    seed = secrets.randbelow(2**31) if order.seed is None else order.seed
    return [
        planned(
            Tuning(
                name="",
                model=one.model.name,
                target=one.column,
                cell=one,
                engine=settings.engine,
                space=value_digest(to_json(space)),
                hypotheses=tuple(to_json(list(space.values()))),
                protocol=protocol,
                seed=seed,
                min_gain=order.min_gain,
            ),
            position,
        )
        for position, one in enumerate(cells)
    ]


def portable_plan(
    settings: Settings, what: str, *, bench: bool = False, no_publish: bool = True
) -> Plan:
    """The plan of a catalog, or of a single model, without champions and device profiles."""
    today = date.today()  # noqa: DTZ011 - the user's date
    wanted = replace(settings, compile=(), champions=None, bench=bench, no_publish=no_publish)
    if is_catalog(what):
        return plan_of(wanted, what, today)
    with temporary_folder("modelmill-") as folder:
        return plan_of(wanted, str(_entry(folder, what)), today)


def is_catalog(what: str) -> bool:
    """Whether that names a catalog, and not a single model."""
    return what in packaged() or what.lower().endswith(CATALOGS)


def _entry(folder: Path, what: str) -> Path:
    """A catalog of one model of the Hub, `ID` or `ID:TASK`."""
    name, _, task = what.partition(":")
    if "/" not in name or model_fault(name):
        raise UsageError(
            f"{quote(what)} is neither a catalog nor a model",
            hint="give FILE.toml, FILE.json, the name of a packaged catalog, or OWNER/NAME:TASK",
        )
    path = folder / "model.toml"
    path.write_text(as_toml("model", {"id": name, "task": task}), "utf-8")
    return path


def _named(state: State, order: Order, rows: Sequence[TuningRow]) -> str:
    """Record them under a name that is not taken."""
    if order.name:
        _check_name(order)
        if not state.plan_tunings(order.name, rows):
            text = f"there is a tuning called {order.name} already"
            again = f"{order.name}{' --fleet' if of_fleet(state, order.name) else ''}"
            raise UsageError(text, hint=f"modelmill tune --resume {again}, or another --name")
        return order.name
    while not state.plan_tunings(name := _free_name(state, order), rows):
        continue
    return name


def _check_name(order: Order) -> None:
    if slug(order.name) != order.name:
        hint = f"for example {slug(order.name) or 'night'}"
        raise UsageError(f"--name {quote(order.name)} may hold a-z, 0-9 and -", hint=hint)


def _free_name(state: StateReader, order: Order) -> str:
    """A name made from the date and the catalog that no tuning has."""
    stem = slug(f"{date.today():%Y%m%d}-{Path(order.what).stem}")  # noqa: DTZ011 - the user's date
    taken = {one.name for one in state.tunings()}
    numbered = (f"{stem}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([stem], numbered) if name not in taken)


def rows_of(state: StateReader, name: str) -> list[TuningRow]:
    """The tunings of a name. Raises `UsageError` if there are none."""
    rows = state.tunings(name)
    if not rows:
        known = list(dict.fromkeys(one.name for one in state.tunings()))[-5:]
        first = "modelmill tune demo --target mlas_cpu begins one"
        hint = f"known: {', '.join(known)}" if known else first
        raise UsageError(f"there is no tuning called {quote(name)}", hint=hint)
    return sorted(rows, key=lambda one: one.position)


def of_fleet(state: StateReader, name: str) -> SweepInfo | None:
    """The sweep in which a fleet makes the tunings of a name; None: one machine makes them."""
    info = state.find_sweep(name)
    return info if info is not None and TUNING in info.settings else None


def work_on(
    settings: Settings, state: State, name: str, budget: float | None, shown: Shown
) -> list[Recorded]:
    """Make what is not done of the tunings of a name, one after the other.

    `budget`: seconds for each of them. One that fails does not keep the others from being made.
    """
    busy = Unusable(f"another process is working on the tuning {name}", hint="let it finish")
    with locked_now(Workspace(settings).home / "tunings" / f"{name}.lock", busy):
        rows = rows_of(state, name)
        for row in rows:
            if not unfinished(row):
                continue
            kept = read_tuning(state, row)
            shown.line(f"{row.model}@{row.target}")
            ours = settings_for(settings, kept.tuning)
            plan = Plan(kept.tuning.name, (), "", "", kept.tuning.engine)
            with open_builder(plan, ours) as builder:
                conclusion = partial(conclude, settings, kept, shown.line)
                Workplace(ours, builder, shown).tune(kept, budget, conclusion)
            kept.change(concluded=True)
            if kept.tuning.message and len(rows) > 1:
                shown.line(f"  {kept.tuning.message}")
        return recorded(state, name)


def unfinished(row: TuningRow) -> bool:
    """Whether something is left to be done: a kill may have come between the last trial and what
    follows from all of them."""
    return row.status is not TuningStatus.DONE or not row.detail.get("concluded", True)


def read_tuning(state: State, row: TuningRow, held: Lease | None = None) -> Kept:
    """A tuning as far as it has come. Raises `UsageError` for one that cannot be read."""
    try:
        return Kept.read(state, row, held)
    except ValueError as error:
        raise UsageError(
            f"the tuning {row.name} of {row.model} cannot be read: {error}",
            hint="begin a new one under another name",
        ) from None
