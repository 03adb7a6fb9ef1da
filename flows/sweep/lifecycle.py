"""A sweep from its plan to its exit code, as plain functions that know nothing of Prefect."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from feed.errors import FeedError, Unauthorized
from feed.index import SweepIndex
from feed.interface import Feed, Published
from feed.publisher import Publisher
from flows.observe.summary import Summary, summary_of
from flows.output.activity import waiting_for
from flows.plan.estimates import Estimates, estimate
from flows.plan.needs import bench_needs_of, needs_of
from flows.plan.planning import selection_of
from flows.plan.recorded import TUNING, note_plan
from flows.settings.settings import Settings
from flows.stop import Stop
from flows.sweep.index import index_of, publish_index, with_listed
from flows.sweep.listing import Listing, check_present, list_feed, there_all_the_same
from flows.sweep.pruning import prune
from matrix.codec import to_json
from matrix.model import Plan, PlannedPackage, is_export
from matrix.needs import Words
from matrix.status import FAILED, FailureClass, Status
from state.errors import StateError
from state.records import CellRow, Facts, Kind, Seeded, SweepInfo

if TYPE_CHECKING:
    from state.state import State

_UNLISTED = "an unlisted feed does not count as empty; --trust-state continues without it"

AGAIN = tuple(kind for kind in FailureClass if kind.may_pass)
"""Causes outside the build that may be gone: a missing tool, a full disk, the network, a login."""


@dataclass(slots=True)
class Sweep:
    """One run of a sweep: begun, that is recorded and seeded, then worked on, at last finished."""

    plan: Plan
    settings: Settings
    state: State
    feed: Feed
    stop: Stop
    recorded: Mapping[str, object] = field(default_factory=dict)
    """The settings that a resume needs; see `flows.plan.recorded`."""
    again: Collection[str] | None = None
    """The failed cells to plan again; None: those whose cause may be gone."""
    flags: str = ""
    """What commands in hints need besides the stamp."""
    by_memory: bool = False
    """Whether to lease cells only to machines with the memory that they took before."""
    patience: float = 0.0
    """Seconds in which an outage of the feed may end."""
    newest: Mapping[str, Published] = field(default_factory=dict)
    """The newest version of each cell under any stamp; only filled with `--if-changed`."""
    earlier: list[str] = field(default_factory=list)
    """What to say of the failures of earlier runs."""
    seeded: Seeded = field(default_factory=lambda: Seeded(0))
    info: SweepInfo = field(init=False)
    """How the state knows it, once it is recorded."""
    _began: float = field(default_factory=time.monotonic, init=False)
    publisher: Publisher | None = field(init=False)
    """None: it does not publish."""

    def begin(self) -> None:
        """Check the feed, record the sweep, and mark what the feed already has."""
        if not self.settings.no_publish:
            waiting_for(f"checking the feed {self.feed.name}")
            check_present(self.feed, self.state)
            self.feed.preflight([(item.package, item.version) for item in self.plan.packages()])
        known = replace(estimate(self.plan, self.state), if_changed=self.settings.if_changed)
        self.record(known)
        catalog = str(self.recorded.get("catalog", ""))
        note_plan(self.state, self.info.id, self.plan, known, catalog)
        listed_at = self.state.now()
        found = None if self.settings.no_publish else self._list()
        # Not before: the listing may end the run, which then leaves failures as they are.
        if tried := self.look_back():
            self.state.retry(self.info.id, among=tried)
        if found is not None:
            self.newest = found.newest
            self._learn(found, listed_at)

    def _list(self) -> Listing | None:
        """What the feed has; None: it cannot be listed, and the state is trusted."""
        try:
            every_stamp = self.settings.if_changed
            return list_feed(self.feed, self.plan, every_stamp=every_stamp, stop=self.stop)
        except FeedError as error:
            if not self.settings.trust_state:
                self.state.end(self.info.id, error.exit_code, self.seconds)
                if not isinstance(error, Unauthorized):
                    error.hint = "; ".join(filter(None, (error.hint, _UNLISTED)))
                raise
            self.state.note(self.info.id, Kind.NOTICE, {"unlisted": str(error)})
            return None

    def record(self, known: Estimates) -> None:
        """Record the sweep, its cells and the settings that a resume needs."""
        plan, settings, name = self.plan, self.settings, self.feed.name
        peaks, bench = known.peaks if self.by_memory else {}, settings.bench
        info = self.state.begin(
            plan.stamp,
            name,
            cell_rows(plan, self.recorded, peaks, bench=bench, emulated=settings.emulated),
            model_seconds(plan, known),
            {**self.recorded, "feed": name},
            to_json(selection_of(settings)),
            publish=not settings.no_publish,
            protocol=asdict(settings.protocol),
        )
        self.is_recorded(info)

    def look_back(self) -> set[str]:
        """Count the failed cells of earlier runs; returns those that this run takes up.

        It tries those again whose cause may be gone. The others fail again until the catalog or the
        settings change: it leaves them, and says which command retries them.
        """
        self.earlier.clear()
        if self.info.created:
            return set()
        cells = {item.id for item in self.plan.packages()}
        failed = {
            one.cell: one.failure or FailureClass.UNKNOWN
            for one in self.state.outcomes(self.info.id, statuses=FAILED, brief=True)
            if one.cell in cells
        }
        again = self.again
        tried = {
            cell
            for cell, kind in failed.items()
            if (kind in AGAIN if again is None else cell in again)
        }
        ours = [cell for cell in failed if not is_export(cell)]
        if taken := Counter(failed[cell] for cell in ours if cell in tried):
            self.earlier.append(f"failed before, tried again: {_counted(taken)}")
        if left := Counter(failed[cell] for cell in ours if cell not in tried):
            again = f"to try them again: modelmill retry {self.plan.stamp}{self.flags}"
            self.earlier.append(f"failed before, left as they are: {_counted(left)}; {again}")
        return tried

    @property
    def seconds(self) -> float:
        """How long this run has taken."""
        return round(time.monotonic() - self._began, 3)

    def is_recorded(self, info: SweepInfo) -> None:
        """Go on with a sweep that is in the state."""
        self.info = info
        tries, patience = self.settings.tries, self.patience
        made = Publisher(self.feed, tries=tries, patience=patience)
        self.publisher = made if info.publish else None

    def _learn(self, found: Listing, listed_at: float) -> None:
        """Bring the state in line with the feed."""
        state, sweep_id = self.state, self.info.id
        self.seeded = state.seed(sweep_id, found.seen)
        there = {one.cell for one in found.seen}
        gone = [item.id for item in self.plan.packages() if item.id not in there]
        state.unseed(sweep_id, gone, listed_at)
        for item in found.deleted:
            outcome = state.outcome(sweep_id, item.id)
            if outcome is None or outcome.status is not Status.PLANNED:
                continue
            facts = Facts(
                failure=FailureClass.PUBLISH,
                stage="publish",
                message=f"{item.package} {item.version} was deleted, and cannot be used again",
                hint="sweep again under another --stamp",
                retryable=False,
            )
            state.record(None, sweep_id, item.id, Status.CONFLICT, facts)

    def has_work(self, offers: Words | None = None) -> bool:
        """Whether anything is to be built or waited for (by a machine that offers these words)."""
        return self.state.remaining(self.info.id, offers=offers).open > 0

    def among(self) -> frozenset[str] | None:
        """The models to lease, when this run selects fewer than the sweep has; None: all."""
        return among(self.plan, self.state, self.info.id)

    def finish(self) -> tuple[Summary, str | None]:
        """Publish the index if the batch is complete; returns the summary and its version."""
        state, info, stop = self.state, self.info, self.stop
        index = None
        if info.publish and not stop:
            self._look_after_failures()
        # The sweep may have more cells than this run selected; only the index lists all of them.
        wanted = {item.id for item in self.plan.packages()}
        ours = (one for one in state.outcomes(info.id, brief=True) if one.cell in wanted)
        summary = summary_of(state, info, ours, ended=not stop)
        if info.publish and not stop and not summary.unfinished and summary.has_content:
            try:
                index = self._publish_index()
            except FeedError as error:
                stop.ask(error)
            if index is not None:
                told = {"package": self.plan.index_package, "version": index}
                state.note(info.id, Kind.INDEX, told)
            summary = replace(summary, unindexed=bool(stop))
        state.end(info.id, summary.exit_code(stop), self.seconds)
        if self.settings.keep_sweeps is not None and not stop:
            with suppress(StateError):  # the next sweep tries again
                prune(state, self.settings.keep_sweeps)
        return summary, index

    def _look_after_failures(self) -> None:
        """Ask the feed for what failed although it may have been published."""
        failed = self.state.outcomes(self.info.id, statuses=FAILED, brief=True)
        doubtful = {
            one.cell
            for one in failed
            if one.failure is FailureClass.CRASH or one.status is Status.PUBLISH_FAILED
        }
        items = [item for item in self.plan.packages() if item.id in doubtful]
        with suppress(FeedError):  # then the index cannot be published either
            if seen := there_all_the_same(self.feed, items):
                self.state.seed(self.info.id, seen)

    def _publish_index(self) -> str | None:
        plan, feed = self.plan, self.feed
        outcomes = self.state.outcomes(self.info.id, brief=True)
        content: SweepIndex | None = index_of(plan.stamp, outcomes)
        if content and any(cell.origin for cell in plan.cells()):
            content = with_listed(feed, plan, content, self.settings)
        if not content or self.publisher is None:
            return None
        return publish_index(feed, self.publisher, plan, self.settings, content)


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

    def measured(one: PlannedPackage) -> Words:
        """What measuring a cell needs; a machine that tunes it also builds its trials."""
        if not bench or one.is_export or one.cell.skip is not None:
            return frozenset()
        wanted = bench_needs_of(one.cell, emulated=emulated)
        return wanted | needs_of(one.cell, plan.engine, values) if TUNING in values else wanted

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
            bench=measured(planned),
        )
        for planned in plan.packages()
    ]


def model_seconds(plan: Plan, known: Estimates) -> dict[str, float]:
    """The models with the time they took before: the longest is built first."""
    return {model.name: known.seconds(model.name) for model in plan.models}


def among(plan: Plan, state: State, sweep_id: int) -> frozenset[str] | None:
    """The models to lease, when this run selects fewer than the sweep has; None: all of them."""
    selected = frozenset(model.name for model in plan.models)
    return None if state.models(sweep_id) <= selected else selected


def _counted(counts: Counter[FailureClass]) -> str:
    return ", ".join(f"{counts[kind]} {kind}" for kind in FailureClass if counts[kind])
