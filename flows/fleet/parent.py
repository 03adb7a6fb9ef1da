"""The parent of a fleet's sweep: begins it, keeps slots coming while work remains, finishes it.

It builds nothing and may die: the slots continue and record, and a resume starts another parent.
One parent leads at a time, the one that began last; an older one ends. A parent whose worker drains
or was killed starts a successor on another worker and ends. While the Prefect server is away, slots
go on, and the page of the parent's flow run lacks what happens meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient

from feed.azure.address import package_page
from flows.fleet.launch import count_slots
from flows.fleet.lead import AWAY
from flows.fleet.run import FLAGS, FleetRun, record_run
from flows.fleet.slot_runs import SlotRuns
from flows.fleet.worker_folder import WorkerFolder
from flows.observe.progress import SweepProgress
from flows.observe.summaries import REPORT_NAME, write_summaries
from flows.observe.summaries.document import SummaryDocument, summary_document
from flows.observe.summaries.markdown import markdown
from flows.observe.summary import Summary, summarize
from flows.observe.unserved import UNSERVED, unserved_groups
from flows.observe.views import View
from flows.output.masking import masked
from flows.packages.signing import signer_of
from flows.prefect.display import REPORT
from flows.prefect.shown_run import ShownRun
from flows.report.collect import collect
from flows.report.page import write as write_page
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.stop import Stop
from flows.sweep.cancellation import StoppedElsewhere, stop_for_all
from flows.sweep.lifecycle import Sweep, among
from matrix.errors import Unusable
from matrix.needs import Words, serves
from matrix.slugs import slug
from state.records import Event, Kind
from state.state import State

INTERVAL = 2.0
"""Seconds between two rounds."""
HELPLESS = 1800.0
"""Seconds after which a sweep ends on which no machine can work."""
LEADS = "leads"
"""Key of the notice with which a parent takes the lead."""
SUCCESSOR_TRIES = 150
"""How often a server that is away is asked for another parent, five minutes in all: a sweep without
a parent ends only when somebody resumes it."""
_UPDATE = 5.0
"""Seconds between two updates of its page."""


@dataclass(slots=True)
class Parent:
    """One run of a sweep."""

    state: State
    run: FleetRun
    settings: Settings
    stop: Stop
    worker: WorkerFolder | None = None
    _unserved: list[dict[str, object]] = field(default_factory=list)
    """As it was last noted."""
    _leads_since: int = 0
    """The notice with which it took the lead."""
    _successor_tries: int = 0
    _helpless_since: float | None = None

    def begin(self) -> tuple[Sweep, FleetRun]:
        """Record and seed; slots are given a run that knows what the feed has."""
        feed = Workspace(self.settings).open_feed()
        signer_of(self.settings)  # it signs the index, when all cells are built
        # An earlier parent of this run has taken up the failed cells; what failed since stays so.
        led = self.run.id and self._is_led(self.run.sweep, self.run.id)
        sweep = Sweep(
            self.run.plan, self.settings, self.state, feed, self.stop, self.run.values,
            again=frozenset() if led else self.run.again,
            flags=FLAGS, by_memory=True,
        )  # fmt: skip
        sweep.begin()
        run = replace(self.run, sweep=sweep.info.id, newest=sweep.newest)
        if run.newest or not run.id:
            run = replace(run, id=record_run(self.state, run))
        return sweep, run

    def lead(self, run: FleetRun, slots: SlotRuns) -> bool:
        """Take the lead until the end; then cancel the slot runs that still wait.

        False: another parent finishes the sweep.
        """
        mark = {LEADS: run.id, "pid": os.getpid()}
        self._leads_since = self.state.note(run.sweep, Kind.NOTICE, mark)
        over = True
        try:
            over = self.supervise(run, slots)
        finally:
            if over:
                # Not twice: a resume that has begun meanwhile would take it for its own end. Before
                # the server is asked for anything: it may be slow, and a cancelled run is killed.
                if self.stop and not isinstance(self.stop.error, StoppedElsewhere):
                    stop_for_all(self.state, run.sweep, self.stop.error)
                with suppress(*AWAY):
                    slots.cancel_waiting()
        return over

    def supervise(self, run: FleetRun, slots: SlotRuns) -> bool:
        """Submit slot runs until nothing is open or a stop. False: a newer parent leads, or the
        worker ends and another parent was asked for."""
        selected = among(run.plan, self.state, run.sweep)
        while not self.stop:
            if self._is_led(run.sweep, self._leads_since):
                return False
            if self.worker is not None and self.worker.draining and self._left(slots):
                return False
            demand = self._demand(run.sweep, selected)
            if demand is None:
                return True
            with suppress(*AWAY):  # the next round asks again
                self._submit_slots(run.sweep, slots, demand)
            self.stop.wait(INTERVAL)
        return True

    def _is_led(self, sweep: int, since: int) -> bool:
        """Whether a parent has taken the lead since that event."""
        notices = self.state.events(sweep, since, kind=Kind.NOTICE)
        return any(LEADS in (one.data or {}) for one in notices)

    def _left(self, slots: SlotRuns) -> bool:
        """Ask for another parent; whether one is under way, or the server stays away."""
        self._successor_tries += 1
        with suppress(*AWAY):
            slots.start_another_parent()
            return True
        return self._successor_tries >= SUCCESSOR_TRIES

    def finish(self, sweep: Sweep) -> tuple[Summary, str | None]:
        """Index, summary and exit code."""
        info = sweep.info
        # Somebody has begun another run of the sweep, which is not ours to finish.
        if self.stop and any(self.state.events(info.id, self._leads_since, kind=Kind.BEGUN)):
            outcomes = self.state.outcomes(info.id, brief=True)
            return summarize(info.stamp, info.feed, outcomes, publish=info.publish), None
        return sweep.finish()

    def _demand(self, sweep: int, selected: frozenset[str] | None) -> dict[Words, int] | None:
        """Work to be leased, by what it needs; None: nothing is open at all."""
        remaining = self.state.demand(sweep, selected)
        if not any(one.open for one in remaining.values()):
            return None
        if not any(one.todo for one in remaining.values()):
            # A lost lease is taken back only when a slot asks for work.
            lost = any(holder.expired for holder in self.state.leases(sweep))
            return {needs: int(lost and one.leased > 0) for needs, one in remaining.items()}
        return {needs: one.todo for needs, one in remaining.items()}

    def _submit_slots(self, sweep: int, slots: SlotRuns, demand: Mapping[Words, int]) -> None:
        queues = slots.served_queues()
        slots.refresh()
        working = sum(not holder.expired for holder in self.state.leases(sweep))
        for queue, words in queues.items():
            wanted = sum(n for needs, n in demand.items() if serves(words, needs))
            slots.fill(queue, wanted, working)
        waiting = [needs for needs, count in demand.items() if count]
        machines = list(queues.values())
        if not all(any(serves(words, needs) for words in machines) for needs in waiting):
            # A machine that is too busy to ask the server for work may well be doing some.
            machines += self.state.machines()
        unserved = unserved_groups(self.state, sweep, waiting, machines)
        failing = {name: text for name, text in slots.failing().items() if name in queues}
        self._give_up_if_helpless(failing, queues)
        unserved += [
            {"ends": message, "needs": sorted(queues[queue])}
            for queue, message in sorted(failing.items())
        ]
        if unserved != self._unserved:
            self._unserved = unserved
            self.state.note(sweep, Kind.NOTICE, {UNSERVED: unserved})

    def _give_up_if_helpless(self, failing: Mapping[str, str], queues: Mapping[str, Words]) -> None:
        """End the sweep when all machines have said for long that they cannot work."""
        if not failing or len(failing) < len(queues):
            self._helpless_since = None
            return
        now = time.monotonic()
        self._helpless_since = self._helpless_since or now
        if now - self._helpless_since > HELPLESS:
            told = failing[min(failing)]
            hint = f"repair it, then: modelmill resume {self.run.plan.stamp} --fleet"
            self.stop.ask(Unusable(f"no machine of the fleet can work: {told}", hint=hint))


@dataclass(slots=True)
class ParentDisplay(View):
    """The page of the parent's flow run, which every tick brings up to date."""

    client: SyncPrefectClient
    sweep: Sweep
    shown: ShownRun
    progress: SweepProgress
    _updated: float = float("-inf")

    def name_and_tag(self, run: UUID, tags: Iterable[str]) -> None:
        """A run that a schedule started does not know its stamp when it begins."""
        with suppress(*AWAY):
            self.client.update_flow_run(run, name=f"sweep-{self.shown.plan.stamp}", tags=list(tags))

    def event(self, event: Event, progress: SweepProgress) -> None:  # noqa: ARG002 - the view's interface
        """Write a line of the log about a cell that has ended."""
        self.shown.log(event)

    def tick(self, progress: SweepProgress) -> None:
        """Update the log and the progress bar, every few seconds."""
        if time.monotonic() >= self._updated + _UPDATE:
            self._updated = time.monotonic()
            count_slots(self.sweep.state, self.sweep.info.id, progress)
            self._update()

    def close(self) -> None:
        """Show where log and progress bar end."""
        self._update()

    def _update(self) -> None:
        with suppress(*AWAY):
            self.shown.show_progress(self.client, self.progress, now=True)
            self.shown.send_logs(self.client)

    def result(self, index: str | None) -> None:
        """The table of outcomes and the summary, with links to the report and the index package."""
        state, info, package = self.sweep.state, self.sweep.info, self.sweep.plan.index_package
        with suppress(*AWAY):
            told = summary_document(state, info)
            report = _write_files(state, told, self.sweep.settings)
            text = masked(markdown(told))
            if index:
                page, name = package_page(info.feed, package, index), f"{package} {index}"
                text += f"\nIndex of this sweep: {f'[{name}]({page})' if page else f'`{name}`'}\n"
            link = f"The whole report: [{report}]({report})" if report else None
            text += f"\n{link or REPORT.format(info.stamp)}\n"
            self.shown.show_result(self.client, state.outcomes(info.id, brief=True), text)


def _write_files(state: State, told: SummaryDocument, settings: Settings) -> str | None:
    """Write the summary files where this machine keeps them; returns the report's address."""
    if not settings.summary:
        return None
    stamp = slug(told.summary.stamp)  # a stamp is one; a name in the state may be any path
    folder = settings.path(settings.summary) / stamp
    write_summaries(folder, told)
    write_page(collect(state, told), folder / REPORT_NAME)
    base = settings.summary_url
    return f"{str(base).rstrip('/')}/{stamp}/{REPORT_NAME}" if base else None
