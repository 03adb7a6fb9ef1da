"""Showing a run of a sweep on a Prefect server, from a thread beside the work.

The thread reads the events of the state, so nothing that builds waits for a server or knows of one.
A server that is late, or comes back, is told everything from the first event on. A slot of a fleet
shows its models in the same way, at the flow run that Prefect started for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from flows.observe.progress import UNSHOWN, SweepProgress
from flows.observe.summaries.document import summary_document
from flows.observe.summaries.markdown import markdown
from flows.observe.summary import summary_of
from flows.output.masking import masked
from flows.prefect.server import ChosenServer
from flows.settings.workspace import Workspace
from flows.sweep.cancellation import StoppedElsewhere
from flows.sweep.lifecycle import Sweep
from matrix.errors import Exit, MillError
from matrix.model import is_export
from matrix.status import Status
from state.records import Kind

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient

    from flows.prefect.shown_run import ShownRun

_LOOK = 1.0
_LONGEST_PAUSE = 30.0
_TRIES = 5
_EXPORTING = 3.0
"""Seconds after which an export is really made, not found in the store."""
REPORT = "`modelmill report {}` writes the whole report."
PAGE = "[The whole report](/reports/{})"
LAST_WORDS = 20.0
"""Seconds that a server gets after the work, to receive what it does not have yet."""
LAST_WORDS_AFTER_STOP = 1.5
"""The same, when somebody waits for the prompt."""


@dataclass
class Display:
    """Shows the run while the block lasts. `problem`: why the server lacks some of it, if so."""

    sweep: Sweep
    after: int
    """The event that begins the run."""
    owners: str
    """How the names of its slots begin; others may work on the same sweep."""
    environ: Mapping[str, str]
    progress: SweepProgress = field(default_factory=lambda: SweepProgress({}))
    flow_run: UUID | None = None
    """The flow run that does the work, in a fleet: it is given task runs, and nothing else."""
    problem: str = ""
    _noted: str = ""
    _failed: int = 0
    """Tries in a row."""
    _run: ShownRun | None = None
    _told: int = 0
    """The last event that the server has received."""
    _ended: threading.Event = field(default_factory=threading.Event)
    """The work is over."""
    _gone: threading.Event = field(default_factory=threading.Event)
    """Nobody waits any more."""
    _error: BaseException | None = None

    def __enter__(self) -> Self:
        self._told = self.after
        self._state = self.sweep.state.at_once
        self._server = ChosenServer(Workspace(self.sweep.settings).home, self.environ)
        self._thread = threading.Thread(target=self._keep_showing, name="display", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._error = error
        self._ended.set()
        self._wait_for_last_words()
        # Our own server, slower to start than the work was, has shown nothing that could be wrong.
        late = self._run is None and self._server.starts
        if self._thread.is_alive() and not self.problem and not late:
            self.problem = self._server.problem()
        self._gone.set()
        if not self.sweep.stop:
            self._note_problem()
        self._server.stop(LAST_WORDS_AFTER_STOP if self.sweep.stop else 5.0)

    def _wait_for_last_words(self) -> None:
        """Give the server time as long as it takes more."""
        told = -1
        while self._thread.is_alive() and not self.sweep.stop and told != self._told:
            told = self._told
            self._thread.join(LAST_WORDS)
        if self.sweep.stop and self._run is not None:
            self._thread.join(LAST_WORDS_AFTER_STOP)

    def _keep_showing(self) -> None:
        try:
            if not self._wanted():
                return
        except MillError:
            return  # the state is gone, and with it the sweep
        pause = _LOOK
        while not self._gone.is_set():
            last = self._ended.is_set()
            try:
                self._show()
            except Exception as error:  # noqa: BLE001 - whatever it is, the work goes on
                self._failed += 1
                self._note(self._server.problem(error))
                if last and not self._may_pass(error):
                    return
            else:
                return
            if self._ended.is_set() and not self._server.lives:
                return  # nobody waits for another one to start
            (self._gone if last else self._ended).wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _may_pass(self, error: Exception) -> bool:
        """Whether the server may take it at the next try, as one does whose database is busy."""
        import httpx

        busy = isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500
        return busy and self._failed < _TRIES

    def _wanted(self) -> bool:
        """Wait until something is built: starting our own server costs seconds of processor time,
        too much for a sweep that finds everything in the store."""
        if self._server.given:
            return True
        seen, exporting = self.after, math.inf
        while time.monotonic() < exporting + _EXPORTING:
            over = self._ended.is_set()
            for event in self._state.events(self.sweep.info.id, seen):
                seen = event.id
                if event.status is Status.BUILDING and not is_export(event.cell or ""):
                    return True
                if event.status is Status.BUILDING:
                    exporting = min(exporting, time.monotonic())
            if over:
                return False
            self._ended.wait(0.2)
        return True

    def _show(self) -> None:
        """Connect, report what happens until the work has ended, and how it ended."""
        url = self._server.url(self._gone)
        from flows.prefect import shown_run

        if self._run is None:
            sweep = self.sweep
            self._run = shown_run.ShownRun(
                sweep.plan, sweep.info.id, sweep.info.settings, self.owners, self.flow_run
            )
        run = self._run
        with shown_run.connected(url) as client:
            if not self._server.given:
                from flows.prefect.old_runs import crash_lost_runs, remove_old_runs

                crash_lost_runs(client)
                remove_old_runs(client, self.sweep.settings.retention)
            if not run.begin(client):
                self._told = self.after
            self._follow(client, run)
            if self.flow_run is None:
                self._end(client, run)
        self._works()

    def _end(self, client: SyncPrefectClient, run: ShownRun) -> None:
        from flows.prefect.shown_run import ended

        state, publish = self._state, self.progress.publish
        info = state.sweep(self.sweep.info.id)
        summary = summary_of(state, info, ended=True)
        code = Exit.UNUSABLE if self._error or info.exit_code is None else Exit(info.exit_code)
        why = self._error or self.sweep.stop.error
        run.show_progress(client, SweepProgress(state.statuses(info.id), publish=publish), now=True)
        for line in summary.lines():
            run.note(line, state.now())
        run.send_logs(client)
        # First what notifications wait for, and what a stop leaves time for.
        run.end(client, ended(summary, code, why))
        outcomes = state.outcomes(info.id, brief=True)
        text = f"{markdown(summary_document(state, info))}\n"
        # Of the pages that show this, only those of `modelmill ui` have a report beside them.
        text += (REPORT if self._server.given else PAGE).format(info.stamp) + "\n"
        run.show_result(client, outcomes, masked(text))

    def _follow(self, client: SyncPrefectClient, run: ShownRun) -> None:
        while True:
            over = self._ended.is_set()  # before the reading, so that nothing is left unread
            for event in self._state.events(self.sweep.info.id, self._told):
                if self._gone.is_set():
                    return
                run.tell(client, event)
                self._told = event.id
            if over:
                run.send_logs(client)
                return
            if self.flow_run is None:
                run.show_progress(client, self.progress)
            run.show_activities(client, self._state.leases(self.sweep.info.id))
            run.send_logs(client)
            self._works()
            if self.flow_run is None and not self.sweep.stop and run.cancelled(client):
                self.sweep.stop.ask(StoppedElsewhere({"why": "cancelled in Prefect"}))
            self._ended.wait(_LOOK)

    def _works(self) -> None:
        self._failed = 0
        self._note("")

    def _note(self, problem: str) -> None:
        """Note a change for those who follow the sweep; a single failed try is not worth a line."""
        if self._gone.is_set():
            return
        self.problem = problem
        if self._failed > 1 or not problem:
            self._note_problem()

    def _note_problem(self) -> None:
        if self.problem != self._noted:
            with suppress(MillError):  # the state fails the sweep where that matters
                self._state.note(self.sweep.info.id, Kind.NOTICE, {UNSHOWN: self.problem})
            self._noted = self.problem
