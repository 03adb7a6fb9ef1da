"""From settings and a catalog's name to a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from feed.rules import STRICTEST
from flows.output.quantity import counted, limited
from flows.plan.configs import config_of
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace, find_sweep
from matrix.catalog import Catalog, load_catalog, packaged
from matrix.cellid import parse
from matrix.errors import NothingSelected, PlanError, Problem, UsageError
from matrix.model import Cell, Plan, is_export
from matrix.naming import Limits
from matrix.plan import PlanOptions, make_plan
from matrix.selector import Selection
from matrix.slugs import has_plain_name
from matrix.status import Status
from matrix.targets import Targets
from state.errors import OlderSchema
from workers.errors import EngineNotFound
from workers.host.engines import find_engine

if TYPE_CHECKING:
    from state.reading import StateReader
    from state.records import SweepInfo

MOST_NOTICES = 20
_PUBLISHED = frozenset({Status.PUBLISHED, Status.UNCHANGED})


def selection_of(settings: Settings) -> Selection:
    """The filters."""
    return Selection(
        models=settings.model,
        tasks=settings.task,
        groups=settings.group,
        model_types=settings.model_type,
        priorities=settings.priority,
        targets=settings.target,
        eps=settings.ep,
        devices=settings.device,
        only=settings.only,
        skip=settings.skip,
    )


def plan_of(settings: Settings, catalog: str, today: date) -> Plan:
    """Everything that can be wrong with the input of a sweep is found here, all at once."""
    problems: list[Problem] = []
    limits = _limits(settings, problems)
    _check_measuring(settings, problems)
    try:
        plan = _plan_of(settings, catalog, today, limits)
    except NothingSelected:
        if not problems:
            raise
    except PlanError as error:
        raise PlanError([*problems, *error.problems]) from None
    except UsageError as error:
        if not problems:
            raise
        problems.append(Problem(catalog, error.message, error.hint))
    if problems:
        raise PlanError(problems)
    return plan


def _check_measuring(settings: Settings, problems: list[Problem]) -> None:
    if not settings.bench:
        return
    try:
        settings.protocol.check()
    except UsageError as error:
        problems.append(Problem("--bench", error.message, error.hint))
    if settings.no_publish:
        text = "only what is published is measured"
        problems.append(Problem("--bench", text, "leave out --no-publish or --bench"))


def _limits(settings: Settings, problems: list[Problem]) -> Limits:
    """What the feed takes; neither it nor the engine is used, only looked up by name."""
    try:
        find_engine(settings.engine)
    except (EngineNotFound, UsageError) as error:
        problems.append(Problem("--engine", error.message, error.hint))
    try:
        return Workspace(settings).open_feed().limits
    except UsageError as error:
        problems.append(Problem("--feed", error.message, error.hint))
        return STRICTEST


def _plan_of(settings: Settings, catalog: str, today: date, limits: Limits) -> Plan:
    work = Workspace(settings)
    targets = work.targets()
    options = PlanOptions(
        stamp=str(settings.stamp or today.strftime("%Y%m%d")),
        limits=limits,
        package=settings.package,
        engine=settings.engine,
        precision=settings.precision,
        opset=settings.opset,
        self_contained=settings.self_contained,
        compile=settings.compile,
        emulated=settings.emulated,
        timeout=settings.timeout,
        publish_timeout=settings.publish_timeout,
    )
    loaded = load_catalog(
        catalog,
        base=settings.cwd,
        targets=targets,
        engine=settings.engine,
        skip_bad=settings.skip_bad_entries,
        config_of=config_of,
    )
    if settings.champions:
        loaded = _with_champions(settings, loaded, targets)
    selection, known = selection_of(settings), partial(_published_before, work)
    return make_plan(loaded, targets, selection, options, known, work.profiles())


def _with_champions(settings: Settings, catalog: Catalog, targets: Targets) -> Catalog:
    from matrix.champions import read_champions, with_champions

    found = read_champions(settings.path(settings.champions or ""), targets)
    labels = [label.strip().casefold().replace("-", "_") for label in settings.compile]
    engine = settings.engine
    return with_champions(catalog, found.values(), targets, engine=engine, profiles=labels)


def _published_before(work: Workspace) -> tuple[str, ...]:
    """The models that were published under a name without a hash, according to the state."""
    if not work.has_state():
        return ()
    found: dict[str, None] = {}
    try:
        opened = work.read_state()
    except OlderSchema:  # a sweep would bring it up to date next
        opened = work.open_state(must_exist=True)
    with opened as state:
        for info in reversed(state.sweeps()):
            for one in state.outcomes(info.id, statuses=_PUBLISHED, brief=True):
                named = None if is_export(one.cell) else parse(one.cell)
                if named and has_plain_name(named.model, named.task, one.version, named.profile):
                    found[one.cell.rpartition("@")[0]] = None
    return tuple(found)


def catalog_reference(settings: Settings, catalog: str) -> str:
    """How a resume from any folder finds the catalog again."""
    return catalog if catalog in packaged() else str((settings.cwd / catalog).absolute())


def size_of(plan: Plan) -> str:
    """`56 cells of 7 models`."""
    cells = sum(len(model.cells) for model in plan.models)
    return f"{counted(cells, 'cell')} of {counted(len(plan.models), 'model')}"


def notice_lines(notices: Sequence[str]) -> Iterator[str]:
    """The notices of a plan, up to a limit."""
    more = "note: ... and {} more: modelmill plan CATALOG --json has all"
    yield from limited([f"note: {notice}" for notice in notices], MOST_NOTICES, more)


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell as a sweep planned it, with the settings of that sweep."""

    info: SweepInfo
    settings: Settings
    plan: Plan
    cell: Cell


def planned_cell(
    state: StateReader, settings: Settings, name: str, stamp: str | None
) -> PlannedCell:
    """A cell of the sweep of that stamp, or of the one begun last."""
    from flows.plan.recorded import compiled_plan, recall, settings_of  # plans need no records

    name = str(parse(name))
    info = find_sweep(state, stamp)
    if compiled := compiled_plan(state, info.id):
        for cell in compiled.cells():
            if cell.id == name:
                return PlannedCell(info, settings_of(compiled, settings, info), compiled, cell)
    recalled, catalog = recall(settings, info.stamp, info.settings)
    today = date.today()  # noqa: DTZ011 - the user's date
    try:
        plan = plan_of(recalled.narrowed(name), catalog, today)
    except NothingSelected as error:
        model = name.partition("@")[0]
        others = (
            one.stamp
            for one in state.sweeps()
            if any(found.cell == name for found in state.outcomes(one.id, model=model, brief=True))
        )
        other = next(others, None)
        where = f"it is in sweep {other}: --stamp {other}" if other else error.hint
        raise NothingSelected(f"sweep {info.stamp} has no cell {name}", hint=where) from None
    return PlannedCell(info, recalled, plan, next(plan.cells()))
