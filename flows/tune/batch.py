"""The tunings of one command: named, recorded, and made one after the other on this machine."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from flows.cli.quantity import brief, counted
from flows.cli.settings import Settings
from flows.packages.measured import finding
from flows.sweep.engines import check_engine
from flows.sweep.local import open_builder
from flows.sweep.planning import plan_of
from flows.sweep.workspace import Workspace
from flows.tune.champions import keep_champion
from flows.tune.estimates import Budget
from flows.tune.explaining import explained
from flows.tune.kept import Kept
from flows.tune.knowledge import load_knowledge
from flows.tune.learning import learn, observations
from flows.tune.making import LEVEL, Workshop
from flows.tune.planning import Planning, check_space, device_of
from flows.tune.record import Recorded, Tuning, planned, recorded
from flows.tune.tuning import Shown, Tools, TuningRun
from machine.ledger import Ledger
from machine.locks import take_now
from machine.reservations import DISTURBS
from machine.waits import WaitRules
from matrix.catalog import packaged
from matrix.cellid import model_fault
from matrix.codec import from_json, to_json
from matrix.digest import value_digest
from matrix.errors import Exit, MillError, UsageError
from matrix.globs import matches
from matrix.hypotheses import Hypothesis
from matrix.model import Cell, Plan, Profile
from matrix.nearest import quote
from matrix.slugs import slug
from matrix.space import chosen, read_space, shipped
from matrix.toml import as_toml
from matrix.trials import TuningStatus
from state.reading import StateReader
from state.state import State
from state.tunings import TuningRow
from workers.compile.devices import available
from workers.host.watch import Watching
from workers.measure.quiet import quiet
from workers.measure.result import this_machine
from workers.measure.running import Driver
from workers.measure.trace.tracer import Tracer
from workers.measure.trace.viewer import find_viewer
from workers.runtimes.pool import Runtimes
from workers.verify.verifier import Verifier

LEAST_SESSIONS = 3
CATALOGS = (".toml", ".json")


class BeingTuned(MillError):
    """Another process works on the tunings of that name."""

    exit_code = Exit.UNUSABLE


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
    protocol = settings.protocol
    protocol.check()
    if protocol.sessions < LEAST_SESSIONS:
        raise UsageError(
            f"--sessions: a comparison has at least {LEAST_SESSIONS}",
            hint="chance cannot be ruled out with fewer",
        )
    check_engine(settings)
    work = Workspace(settings)
    space = chosen(read_space([*shipped(), *order.space], work.targets()), order.only)
    load_knowledge(work.knowledge)
    cells = _cells(settings, order.what)
    check_space(space, sorted({one.target.label for one in cells}))
    seed = secrets.randbelow(2**31) if order.seed is None else order.seed
    rows = [
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
    return _named(state, order, rows)


def _cells(settings: Settings, what: str) -> list[Cell]:
    """The portable cells of a catalog, or of a single model."""
    today = date.today()  # noqa: DTZ011 - the user's date
    wanted = replace(settings, compile=(), champions=None, bench=False, no_publish=True)
    if what in packaged() or what.lower().endswith(CATALOGS):
        plan = plan_of(wanted, what, today)
    else:
        with tempfile.TemporaryDirectory(prefix="modelmill-") as folder:
            plan = plan_of(wanted, str(_entry(Path(folder), what)), today)
    return [one for one in plan.cells() if one.skip is None and not one.members]


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
        if slug(order.name) != order.name:
            hint = f"for example {slug(order.name) or 'night'}"
            raise UsageError(f"--name {quote(order.name)} may hold a-z, 0-9 and -", hint=hint)
        if not state.plan_tunings(order.name, rows):
            text = f"there is a tuning called {order.name} already"
            raise UsageError(text, hint=f"modelmill tune --resume {order.name}, or another --name")
        return order.name
    stem = slug(f"{date.today():%Y%m%d}-{Path(order.what).stem}")  # noqa: DTZ011 - the user's date
    number, name = 1, stem
    while not state.plan_tunings(name, rows):
        number += 1
        name = f"{stem}-{number}"
    return name


@contextmanager
def held(settings: Settings, name: str) -> Iterator[None]:
    """Nobody else works on the tunings of this name. Raises `BeingTuned`."""
    folder = Workspace(settings).home / "tunings"
    folder.mkdir(parents=True, exist_ok=True)
    lock = take_now(folder / f"{name}.lock")
    if lock is None:
        raise BeingTuned(f"another process is working on the tuning {name}", hint="let it finish")
    try:
        yield
    finally:
        lock.release()


def rows_of(state: StateReader, name: str) -> list[TuningRow]:
    """The tunings of a name. Raises `UsageError` if there are none."""
    rows = state.tunings(name)
    if not rows:
        known = list(dict.fromkeys(one.name for one in state.tunings()))[-5:]
        first = "modelmill tune demo --target mlas_cpu begins one"
        hint = f"known: {', '.join(known)}" if known else first
        raise UsageError(f"there is no tuning called {quote(name)}", hint=hint)
    return sorted(rows, key=lambda one: one.position)


def work_on(
    settings: Settings, state: State, name: str, budget: float | None, shown: Shown
) -> list[Recorded]:
    """Make what is not done of the tunings of a name, one after the other.

    `budget`: seconds for each of them. One that fails does not keep the others from being made.
    """
    with held(settings, name):
        rows = rows_of(state, name)
        for row in rows:
            if not unfinished(row):
                continue
            kept = _read(state, row)
            shown.line(f"{row.model}@{row.target}")
            _tune(settings, kept, budget, shown)
            if kept.tuning.message and len(rows) > 1:
                shown.line(f"  {kept.tuning.message}")
        return recorded(state, name)


def unfinished(row: TuningRow) -> bool:
    """Whether something is left to be done: a kill may have come between the last trial and what
    follows from all of them."""
    return row.status is not TuningStatus.DONE or not row.detail.get("concluded", True)


def _read(state: State, row: TuningRow) -> Kept:
    try:
        return Kept.read(state, row)
    except ValueError as error:
        raise UsageError(
            f"the tuning {row.name} of {row.model} cannot be read: {error}",
            hint="begin a new one under another name",
        ) from None


def _tune(settings: Settings, kept: Kept, budget: float | None, shown: Shown) -> None:
    tuning = kept.tuning
    settings = replace(settings, engine=tuning.engine, verify=LEVEL)
    work, ledger = Workspace(settings), Ledger()
    plan = Plan(tuning.name, (), "", "", tuning.engine)

    def alone(what: str) -> AbstractContextManager[None]:
        return quiet(what, wait=True, ledger=ledger, told=shown.detail)

    def busy(what: str) -> AbstractContextManager[object]:
        return ledger.reserve([DISTURBS], what, WaitRules(told=shown.detail))

    with (
        finding(settings, tuning.protocol.threads) as finder,
        open_builder(plan, settings) as builder,
        closing(Verifier(finder.runtimes, LEVEL)) as verifier,
    ):
        profiles = _profiles(settings, tuning, finder.runtimes)
        watching = Watching(settings.timeout, progress=shown.detail)
        tracer = Tracer(
            finder.runtimes, lambda: find_viewer(os.environ.get("QNN_SDK_ROOT")), watching
        )
        planning = Planning(
            tuning, _space(tuning), load_knowledge(work.knowledge), profiles, finder, tracer, alone
        )
        tools = Tools(
            maker=Workshop(builder, verifier, finder, busy, shown.detail),
            driver=lambda: Driver(finder.runtimes, watching),
            quiet=alone,
            rest=time.sleep,
            clock=time.monotonic,
            planner=planning.plan,
            profile=lambda glob: next(
                (one for one in profiles if matches(one.label, [glob])), None
            ),
            shown=shown,
        )
        TuningRun(kept, tools, Budget(time.monotonic, budget)).run()
        conclude(settings, kept, builder.tools, shown)
        if kept.tuning.champion and kept.tuning.status is not TuningStatus.FAILED:
            kept.change(explained=explained(kept.tuning, tools, finder, tracer))
        kept.change(concluded=True)


def champions_file(settings: Settings) -> Path:
    """Where champions are kept."""
    if settings.champions:
        return settings.path(settings.champions)
    return Workspace(settings).home / "champions.toml"


def conclude(
    settings: Settings, kept: Kept, tools: Callable[[], Mapping[str, str]], shown: Shown
) -> None:
    """Keep what follows from the trials: the champion, and what was seen.

    `tools`: what is here now. A tuning that has failed may be of other ones, so it crowns nobody.
    """
    _learn(kept, Workspace(settings).knowledge, shown)
    if kept.tuning.status is TuningStatus.FAILED:
        return
    found = Recorded(kept.tuning, tuple(kept.trials.values()))
    at = datetime.now(UTC).date().isoformat()
    file, targets = champions_file(settings), Workspace(settings).targets()
    try:
        keep_champion(file, found, targets, tools(), at)
    except MillError as error:
        # The others of a catalog are tuned all the same, and a resume tries it again.
        kept.change(status=TuningStatus.FAILED, message=brief(f"its champion is not kept: {error}"))


def _learn(kept: Kept, knowledge: Path, shown: Shown) -> None:
    """Add what was seen to the knowledge base; the verdicts stand also if that is not possible."""
    # The state knows when it ended.
    every = recorded(kept.state, kept.tuning.name)
    found = next((one for one in every if one.tuning.id == kept.tuning.id), None)
    if found is None or found.tuning.runtime is None:
        return
    machine = found.tuning.machine or this_machine()
    seen = observations(found, device_of(found.tuning.runtime, machine))
    try:
        lines, drafts = learn(knowledge, seen)
    except MillError as error:
        shown.line(f"  nothing is learned: {error}")
        return
    if lines:
        draft = f" and {counted(drafts, 'draft')}" if drafts else ""
        shown.line(f"  learned: {counted(lines, 'observation')}{draft} in {knowledge}")


def _space(tuning: Tuning) -> dict[str, Hypothesis]:
    found = [from_json(one, Hypothesis) for one in tuning.hypotheses]
    return {one.id: one for one in found}


def _profiles(settings: Settings, tuning: Tuning, runtimes: Runtimes) -> list[Profile]:
    """What can be compiled for here, of the target."""
    work = Workspace(settings)
    own = [one for one in work.profiles() if one.target == tuning.cell.target.label]
    found = available(runtimes, own, work.targets(), emulated=settings.emulated)
    return [one.profile for one in found if one.runtime is not None]
