"""A sweep from its plan to its exit code, as plain functions that know nothing of Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from feed.errors import FeedError, Unauthorized
from feed.index import SweepIndex
from feed.interface import Feed, Published
from feed.publisher import Publisher
from flows.cli.activity import waiting_for
from flows.cli.settings import Settings
from flows.observe.estimates import Estimates, estimate
from flows.observe.summary import Summary, summarize
from flows.observe.unserved import unserved_of
from flows.sweep.earlier_failures import EarlierFailures, try_again
from flows.sweep.index import index_of, publish_index, with_listed
from flows.sweep.needs import bench_needs_of, needs_of
from flows.sweep.planning import selection_of
from flows.sweep.published import Listing, list_feed
from flows.sweep.recorded import note_plan
from flows.sweep.stop import Stop
from matrix.codec import to_json
from matrix.model import Plan
from matrix.needs import Words
from matrix.status import FailureClass, Status
from state.records import CellRow, Facts, Kind, ModelRow, Seeded, SweepInfo

if TYPE_CHECKING:
    from state.state import State

_UNLISTED = "a feed that cannot be listed is not taken for empty; --trust-state goes on without it"


@dataclass(frozen=True, slots=True)
class Begun:
    """A sweep that is recorded and seeded: its open cells are the work left."""

    info: SweepInfo
    newest: Mapping[str, Published]
    earlier: EarlierFailures = field(default_factory=EarlierFailures)
    seeded: Seeded = Seeded(0)  # noqa: RUF009 - frozen


def begin(
    plan: Plan,
    state: State,
    feed: Feed,
    settings: Settings,
    *,
    recorded: Mapping[str, object],
    stop: Stop,
    again: bool = True,
    by_memory: bool = False,
) -> Begun:
    """Check the feed, record the sweep, and mark what the feed already has.

    `again`: retry failures whose cause may be gone, see `flows.sweep.earlier_failures`.
    `by_memory`: lease cells only to machines with the memory that they took before.
    """
    if not settings.no_publish:
        waiting_for(f"checking the feed {feed.name}")
        feed.preflight([(item.package, item.version) for item in plan.packages()])
    known = replace(estimate(plan, state), if_changed=settings.if_changed)
    info, earlier = record(
        plan, state, feed, settings, known, recorded, again=again, by_memory=by_memory
    )
    note_plan(state, info.id, plan, known)
    if settings.no_publish:
        return Begun(info, {}, earlier)
    listed_at = state.now()
    try:
        found = list_feed(feed, plan, every_stamp=settings.if_changed, stop=stop)
    except FeedError as error:
        if not settings.trust_state:
            if not isinstance(error, Unauthorized):
                error.hint = "; ".join(filter(None, (error.hint, _UNLISTED)))
            raise
        state.note(info.id, Kind.NOTICE, {"unlisted": str(error)})
        return Begun(info, {}, earlier)
    seeded = _learn(plan, state, info.id, found, listed_at)
    return Begun(info, found.newest, earlier, seeded)


def record(
    plan: Plan,
    state: State,
    feed: Feed,
    settings: Settings,
    known: Estimates,
    recorded: Mapping[str, object],
    *,
    again: bool,
    by_memory: bool,
) -> tuple[SweepInfo, EarlierFailures]:
    """Record the sweep, its cells and the settings that a resume needs; see `begin`."""
    info = state.begin(
        plan.stamp,
        feed.name,
        cell_rows(
            plan,
            recorded,
            known.peaks if by_memory else {},
            bench=settings.bench,
            emulated=settings.emulated,
        ),
        model_rows(plan, known),
        {**recorded, "feed": feed.name},
        to_json(selection_of(settings)),
        publish=not settings.no_publish,
        protocol=asdict(settings.protocol),
    )
    return info, try_again(state, info, {item.id for item in plan.packages()}, again=again)


def _learn(plan: Plan, state: State, sweep_id: int, found: Listing, listed_at: float) -> Seeded:
    """Bring the state in line with the feed."""
    seeded = state.seed(sweep_id, found.seen)
    there = {one.cell for one in found.seen}
    gone = [item.id for item in plan.packages() if item.id not in there]
    state.unseed(sweep_id, gone, listed_at)
    for item in found.deleted:
        outcome = state.outcome(sweep_id, item.id)
        if outcome is None or outcome.status is not Status.PLANNED:
            continue
        facts = Facts(
            failure=FailureClass.PUBLISH,
            stage="publish",
            message=f"{item.package} {item.version} was deleted from the feed and stays taken",
            hint="sweep again under another --stamp",
            retryable=False,
        )
        state.record(None, sweep_id, item.id, Status.CONFLICT, facts)
    return seeded


def cell_rows(
    plan: Plan,
    values: Mapping[str, object],
    peaks: Mapping[tuple[str, str, str], int] | None = None,
    *,
    bench: bool = False,
    emulated: bool = False,
) -> list[CellRow]:
    """Every cell, and every export that a cell needs, as the state keeps them.

    `values`: the settings of the sweep; `peaks`: the memory of each stage of each model; `bench`:
    measure the cells, `emulated`: also on emulators.
    """
    memory: dict[str, int] = {}
    for (name, _stage, _component), peak in (peaks or {}).items():
        memory[name] = max(memory.get(name, 0), peak)
    return [
        CellRow(
            cell=planned.id,
            model=planned.cell.model.name,
            target=planned.target,
            precision="" if planned.is_export else planned.cell.policy.precision,
            package=planned.package,
            version=planned.version,
            skip=None if planned.is_export else planned.cell.skip,
            needs=needs_of(
                planned.cell, plan.engine, values, memory.get(planned.cell.model.name, 0)
            ),
            bench=bench_needs_of(planned.cell, emulated=emulated)
            if bench and not planned.is_export and planned.cell.skip is None
            else (),
        )
        for planned in plan.packages()
    ]


def model_rows(plan: Plan, known: Estimates) -> list[ModelRow]:
    """The models with the time they took before: the longest is built first."""
    return [
        ModelRow(model.name, position, known.seconds(model.name))
        for position, model in enumerate(plan.models)
    ]


def has_work(state: State, info: SweepInfo, offers: Words | None = None) -> bool:
    """Whether anything is to be built or waited for (that a machine with these words may build)."""
    return state.remaining(info.id, offers=offers).open > 0


def among(plan: Plan, state: State, sweep_id: int) -> frozenset[str] | None:
    """The models to lease, when this run selects fewer than the sweep has; None: all of them."""
    selected = frozenset(model.name for model in plan.models)
    return None if state.models(sweep_id) <= selected else selected


def finish(
    plan: Plan,
    state: State,
    feed: Feed,
    publisher: Publisher | None,
    info: SweepInfo,
    stop: Stop,
    template: str,
) -> tuple[Summary, str | None]:
    """Publish the index if the batch is complete; returns the summary and the index's version."""
    index = None
    # The sweep may have more cells than this run selected; only the index lists all of them.
    wanted = {item.id for item in plan.packages()}
    ours = (one for one in state.outcomes(info.id, brief=True) if one.cell in wanted)
    benches = (one for one in state.benches(info.id) if one.cell in wanted)
    summary = summarize(plan.stamp, feed.name, ours, benches, publish=publisher is not None)
    if (summary.unfinished or summary.unmeasured) and not stop:
        summary = replace(summary, waiting=tuple(unserved_of(state, info.id).lines()))
    if publisher is not None and not stop and not summary.unfinished and summary.has_content:
        content: SweepIndex | None = index_of(plan.stamp, state.outcomes(info.id, brief=True))
        try:
            if content and any(cell.origin for cell in plan.cells()):
                content = with_listed(feed, plan, content)
            if content:
                index = publish_index(feed, publisher, plan, template, content)
        except FeedError as error:
            stop.ask(error)
        else:
            if index is not None:
                state.note(info.id, Kind.INDEX, {"package": plan.index_package, "version": index})
    state.end(info.id, summary.exit_code(stop))
    return summary, index
