"""One run of a sweep on this machine, from opening feed and state to the last line printed."""

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
from flows.packages.cache import place_of
from flows.packages.signing import signer_of
from flows.plan.needs import words_here
from flows.plan.planning import notice_lines, size_of
from flows.plan.recorded import recorded_estimates
from flows.prefect.display import Display
from flows.prefect.server import prefect_home_of
from flows.run.unchanged import settle_unchanged
from flows.settings.engines import check_engine, slot_count
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.slot.loop import run_slots
from flows.slot.slots import open_slots, owners_here
from flows.stop import Stop, stopped_by_signals
from flows.sweep.cancellation import CancellationWatch
from flows.sweep.index import index_line
from flows.sweep.lifecycle import Sweep
from matrix.errors import Exit
from matrix.model import Plan
from matrix.needs import Words
from state.records import Kind
from state.state import State


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
        with stopped_by_signals(self._stop):
            with work.open_state() as opened:
                settings, stop = self.settings, self._stop
                sweep = Sweep(self.plan, settings, opened, feed, stop, self.recorded, self.again)
                summary, index = self._run(sweep)
                took = LastRun.of(opened, sweep.info)
            code = summary.exit_code(self._stop)
            print_ended(sweep, summary, index, took, code, self.as_json, unshown=self._unshown)
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
            ended = sweep.finish()  # what is shown ends with how it ended
        if self.settings.summary:
            folder = self.settings.path(self.settings.summary)
            write_summaries(folder, summary_document(state, info))
        return ended

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
        for line in sweep.earlier.lines(self.plan.stamp):
            print(line)
        sys.stdout.flush()


def print_ended(
    sweep: Sweep,
    summary: Summary,
    index: str | None,
    took: LastRun,
    code: Exit,
    as_json: bool,
    *,
    unshown: str = "",
) -> None:
    """Print how a run ended."""
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
