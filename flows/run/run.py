"""One run of a sweep on this machine, from opening feed and state to the last line printed.

With `--if-changed`, unchanged models are settled before any slot starts. Stage keys and the store
are enough to know what a build would produce. A model whose open cells all equal their newest
versions needs no slot, so a sweep of an unchanged catalog starts no Prefect server. If any open
cell of a model differs, the slots process the whole model.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from flows.observe.following import Follower
from flows.observe.progress import SweepProgress
from flows.observe.summaries import clear_summaries, write_summaries
from flows.observe.summaries.document import LastRun, summary_document
from flows.observe.summary import Summary
from flows.observe.unserved import UNSERVED, unserved_groups
from flows.observe.views import choose_view
from flows.output.quantity import counted
from flows.packages.builder import open_builder, place_of
from flows.packages.signing import signer_of
from flows.plan.needs import words_here
from flows.plan.planning import notice_lines, size_of
from flows.plan.recorded import recorded_estimates
from flows.prefect.display import Display
from flows.prefect.server import prefect_home_of
from flows.settings.engines import check_engine, slot_count
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.slot.slots import open_slots, owners_here, run_slots
from flows.stop import Stop, stopped_by_signals
from flows.sweep.cancellation import CancellationWatch
from flows.sweep.index import index_line
from flows.sweep.lifecycle import Sweep
from machine.waits import Cancelled
from matrix.errors import Exit
from matrix.model import Plan, PlannedModel, PlannedPackage
from matrix.needs import Words, is_measuring
from matrix.status import Status
from state.records import Facts, Kind, Lease, Owner
from state.state import State
from workers.build.builder import Builder
from workers.build.keys import last_keys
from workers.errors import BuildFailed
from workers.host.watch import Watching


@dataclass(slots=True)
class Run:
    """One run of `sweep`, `resume` or `retry`."""

    plan: Plan
    settings: Settings
    recorded: Mapping[str, Any]
    """What a resume needs to know; see `flows.plan.recorded`."""
    as_json: bool = False
    again: Collection[str] | None = None
    """As in `flows.sweep.lifecycle.Sweep`."""
    _stop: Stop = field(default_factory=Stop, init=False)
    _unshown: str = field(default="", init=False)
    """Why Prefect does not show all of the run; empty if it does."""

    def go(self) -> Exit:
        """Begin, build what is open, finish."""
        work = Workspace(self.settings)
        feed = work.open_feed()
        if any(cell.origin is None for cell in self.plan.cells()):
            check_engine(self.settings)  # errors in these come before any folder is made
        signer_of(self.settings)
        place_of(self.settings, os.environ)
        work.prepare()
        work.tidy()
        if self.settings.summary:
            clear_summaries(self.settings.path(self.settings.summary))
        # Up to the last line: a second Ctrl-C must not cut off the summary of the first.
        with stopped_by_signals(self._stop), work.open_state() as opened:
            settings, stop = self.settings, self._stop
            sweep = Sweep(self.plan, settings, opened, feed, stop, self.recorded, self.again)
            summary, index = self._run(sweep)
            code, unshown = summary.exit_code(self._stop), self._unshown
            tell_ended(opened, sweep, summary, index, code, self.as_json, unshown=unshown)
        return code

    def _run(self, sweep: Sweep) -> tuple[Summary, str | None]:
        state, stop = sweep.state, self._stop
        if not self.as_json:
            head = f"sweep {self.plan.stamp}: {size_of(self.plan)} -> {sweep.feed.name}"
            print(head, *notice_lines(self.plan.notices), sep="\n", flush=True)
        sweep.begin()
        self._say_begun(sweep)
        info, offers = sweep.info, self._offers()
        _note_unserved(state, info.id, offers)
        with ExitStack() as showing:
            with CancellationWatch(state, info.id, info.run, stop):
                if not stop and sweep.has_work(offers):
                    progress = self._progress(sweep)
                    after = state.note(info.id, Kind.STARTED, {"pid": os.getpid()})
                    after = self._settle(sweep, progress, after)
                    if not stop and sweep.has_work(offers):
                        showing.enter_context(self._shown(sweep, progress, after))
                        with (
                            open_slots(sweep, offers=offers) as (context, slots),
                            self._followed(sweep, progress, after),
                        ):
                            run_slots(context, slots)
                    _note_unserved(state, info.id, offers)  # now it is known what can be measured
            return sweep.finish()  # what is shown ends with how it ended

    def _offers(self) -> Words:
        """What this machine offers of what the plan may need."""
        cells, settings = list(self.plan.cells()), self.settings
        profiles = {cell.profile.label: cell.profile for cell in cells if cell.profile}
        targets = {(one.target.ep, one.target.device): one.target for one in cells}
        benches = targets.values() if settings.bench else ()
        engines = [self.plan.engine]
        return words_here(settings, engines, settings.has, profiles.values(), benches)

    def _progress(self, sweep: Sweep) -> SweepProgress:
        state, info = sweep.state, sweep.info
        statuses, known = state.statuses(info.id), recorded_estimates(state, info.id)
        count = slot_count(self.settings)
        return SweepProgress(statuses, publish=info.publish, slots=count, known=known)

    def _followed(self, sweep: Sweep, progress: SweepProgress, after: int) -> Follower:
        """Shows the run to the user while the block runs."""
        view = choose_view(as_json=self.as_json)
        return Follower(sweep.state, sweep.info.id, view, progress, after)

    @contextmanager
    def _shown(self, sweep: Sweep, progress: SweepProgress, after: int) -> Iterator[None]:
        """Show the run in Prefect while the block runs, if a server can be had."""
        environ = os.environ
        if not environ.get("PREFECT_API_URL"):  # before Prefect is imported and reads it
            environ["PREFECT_HOME"] = str(prefect_home_of(Workspace(self.settings).home, environ))
        display = Display(sweep, after, owners_here(), environ, progress)
        try:
            with display:
                yield
        finally:
            # After a stop it does not matter how much was shown.
            self._unshown = "" if self._stop else display.problem

    def _settle(self, sweep: Sweep, progress: SweepProgress, after: int) -> int:
        """Settle the cells that need no slot; returns the last event that was shown."""
        if not sweep.newest or os.environ.get("PREFECT_API_URL"):
            return after  # the user's own server shows every sweep
        with self._followed(sweep, progress, after) as follower:
            settle_unchanged(sweep)
        return follower.seen

    def _say_begun(self, sweep: Sweep) -> None:
        if self.as_json:
            return
        if sweep.seeded.new:
            print(f"already in the feed: {counted(sweep.seeded.new, 'package')}")
        if wrong := sweep.seeded.corrected:
            lacks = f"{counted(len(wrong), 'digest')} that the feed does not have"
            print(f"note: the state had {lacks}, corrected: {wrong[0]}")
        for line in sweep.earlier:
            print(line)
        sys.stdout.flush()


def tell_ended(
    state: State,
    sweep: Sweep,
    summary: Summary,
    index: str | None,
    code: Exit,
    as_json: bool,
    *,
    unshown: str = "",
) -> None:
    """Write the summary files that were asked for, and print how a run ended."""
    if sweep.settings.summary:
        folder = sweep.settings.path(sweep.settings.summary)
        write_summaries(folder, summary_document(state, sweep.info))
    took = LastRun.of(state, sweep.info)
    if as_json:
        ended = {"index": index, "exit_code": int(code), "unshown": unshown or None}
        document = {"type": "summary", **summary.to_json(), **took.to_json(), **ended}
        print(json.dumps(document), flush=True)
        return
    if grid := list(summary.grid()):
        print("\n".join(["", *grid, ""]))
    print("\n".join(summary.lines()))
    if unshown:
        print(f"note: Prefect does not show all of this run: {unshown}")
    if index is not None:
        print(index_line(sweep.plan, sweep.settings.package, index, len(summary.failures)))
    print(took)
    if sweep.stop.error is not None:
        print(f"stopped: {sweep.stop.error}", file=sys.stderr)
    if code in {Exit.INTERRUPTED, Exit.HOST_CANNOT_PUBLISH, Exit.UNUSABLE}:
        print(
            f"what is built is kept: modelmill resume {sweep.plan.stamp}{sweep.flags}",
            file=sys.stderr,
        )


def _note_unserved(state: State, sweep_id: int, offers: Words) -> None:
    wanted = [one for one, left in state.demand(sweep_id).items() if left.open]
    if unserved := unserved_groups(state, sweep_id, wanted, [offers]):
        state.note(sweep_id, Kind.NOTICE, {UNSERVED: unserved})


def settle_unchanged(sweep: Sweep) -> None:
    """Record every model as unchanged whose open cells all equal their newest versions."""
    candidates = list(_candidates(sweep))
    if not candidates:
        return
    state, sweep_id = sweep.state, sweep.info.id
    needs = state.demand(sweep_id)
    builds: Words = frozenset().union(*(words for words in needs if not is_measuring(words)))
    owner = Owner.here(f"{owners_here()}unchanged")
    with open_builder(sweep.plan, sweep.settings) as builder:
        for model, packages in candidates:
            if sweep.stop:
                return
            if not _are_unchanged(builder, packages, sweep):
                continue
            ttl, only = 2 * sweep.settings.heartbeat, {model.name}
            while (lease := state.lease(sweep_id, owner, ttl, only, builds)) is not None:
                _record_unchanged(sweep, lease, {one.id: one for one in packages})


def _candidates(sweep: Sweep) -> Iterator[tuple[PlannedModel, list[PlannedPackage]]]:
    """Models with open cells that all have a version under another stamp."""
    selected = sweep.among()
    for model in sweep.plan.models:
        if selected is not None and model.name not in selected:
            continue
        statuses = sweep.state.statuses(sweep.info.id, model.name)
        fresh, planned = {Status.PLANNED, Status.CANCELLED}, sweep.plan.packages_of(model)
        packages = [one for one in planned if statuses.get(one.id) in fresh]
        only = len(packages) == sum(status.open for status in statuses.values())
        if packages and only and all(one.id in sweep.newest for one in packages):
            yield model, packages


def _are_unchanged(builder: Builder, packages: list[PlannedPackage], sweep: Sweep) -> bool:
    """Whether a build would only make the newest versions again, according to the store."""
    # Without a build before, planning a model of the hub would need a request.
    if not all(one.is_export or last_keys(builder.store.notes, one.id) for one in packages):
        return False
    watching = Watching(cancel=sweep.stop.event)
    try:
        return all(
            builder.predict(one.cell, watching, export=one.is_export) == sweep.newest[one.id].tree
            for one in packages
        )
    except (BuildFailed, Cancelled):
        return False  # the build itself says what is wrong


def _record_unchanged(sweep: Sweep, lease: Lease, cells: Mapping[str, PlannedPackage]) -> None:
    state, sweep_id = sweep.state, sweep.info.id
    done = False
    try:
        leased = state.statuses(sweep_id, lease.model, lease.needs)
        for cell in leased.keys() & cells.keys():
            newest = sweep.newest[cell]
            # A group that lacks a member is never predicted, so this one is whole.
            members = [one.id for one in cells[cell].cell.members]
            detail = {"same_as": newest.version, **({"members": members} if members else {})}
            facts = Facts(tree=newest.tree, detail=detail)
            state.record(lease, sweep_id, cell, Status.UNCHANGED, facts)
        done = True
    finally:
        state.release(lease, done=done)
