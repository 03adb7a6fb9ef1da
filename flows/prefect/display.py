"""Showing a run of a sweep on a Prefect server, from a thread of its own beside the work.

The events of the state are all that it reads, so nothing that builds waits for a server or knows of
one. A server that is late, or comes back, is told everything from the first event on. Without
PREFECT_API_URL the server is ours: started when the first cell is built, and again when it dies.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from flows.observe.tally import UNSHOWN, Tally
from flows.prefect.server import Server, ServerFailed, start_server
from flows.sweep.cancellation import StoppedElsewhere
from flows.sweep.exports import is_export
from flows.sweep.stop import Stop
from matrix.model import Plan
from matrix.status import Status
from state.ledger import State
from state.records import Kind

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

    from flows.prefect.shown_run import ShownRun

_LOOK = 1.0
_LONGEST_PAUSE = 30.0
_TRIES = 5
_EXPORTING = 3.0
"""Seconds after which an export is one that is really made."""
FAREWELL = 20.0
"""Seconds that a server gets after the work, to take what it was not told yet."""
FAREWELL_AFTER_STOP = 1.5
"""The same, when somebody waits for the prompt."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where the events of a run are."""

    state: State
    sweep: int
    after: int
    """The event that begins the run."""
    owners: str
    """How the names of its slots begin; others may work on the same sweep."""


@dataclass
class Display:
    """Shows the run while the block lasts. `problem`: why the server lacks some of it, if so."""

    where: Where
    plan: Plan
    tally: Tally
    stop: Stop
    home: Path
    environ: Mapping[str, str]
    problem: str = ""
    _noted: str = ""
    _failed: int = 0
    """Tries in a row."""
    _server: Server | None = None
    _run: ShownRun | None = None
    _told: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    """The work is over."""
    _gone: threading.Event = field(default_factory=threading.Event)
    """Nobody waits any more."""
    _error: BaseException | None = None

    def __enter__(self) -> Self:
        self._told = self.where.after
        self._thread = threading.Thread(target=self._keep_showing, name="display", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._error = error
        self._ended.set()
        limit = FAREWELL
        if self.stop:
            limit = FAREWELL_AFTER_STOP if self._run is not None else 0.0
        self._thread.join(limit)
        if self._thread.is_alive() and not self.problem:
            trouble = self._server.trouble() if self._server is not None else ""
            self.problem = trouble or f"{self._whose} was too slow"
        self._gone.set()
        server, self._server = self._server, None
        if server is not None:
            server.stop(FAREWELL_AFTER_STOP if self.stop else 5.0)

    def _keep_showing(self) -> None:
        if not self._own_wanted():
            return
        pause = _LOOK
        while not self._gone.is_set():
            last = self._ended.is_set()
            try:
                self._show()
            except Exception as error:  # noqa: BLE001 - whatever it is, the work goes on
                self._failed += 1
                self._note(self._reason(error))
                if last and not self._may_pass(error):
                    return
            else:
                return
            if self._ended.is_set() and not self._has_server():
                return  # nobody waits for one more to start
            (self._gone if last else self._ended).wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _may_pass(self, error: Exception) -> bool:
        """Whether the server only asks for a moment, as one does whose database is busy."""
        import httpx

        busy = isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500
        return busy and self._failed < _TRIES

    def _has_server(self) -> bool:
        return bool(self.environ.get("PREFECT_API_URL")) or self._server_lives()

    def _own_wanted(self) -> bool:
        """Starting a server costs seconds of processor time: not where nothing is built, and an
        export that is found in the store takes no time."""
        if self.environ.get("PREFECT_API_URL"):
            return True
        seen, exporting = self.where.after, math.inf
        while time.monotonic() < exporting + _EXPORTING:
            over = self._ended.is_set()
            for event in self.where.state.events(self.where.sweep, seen):
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
        """Connect, tell what happens until the work has ended, and how it ended."""
        url = self._find_server()
        from flows.prefect import shown_run

        if self._run is None:
            models = {model.name: model for model in self.plan.models}
            self._run = shown_run.ShownRun(self.plan.stamp, models, self.where.owners)
        run = self._run
        with shown_run.connected(url) as client:
            if self._server is not None:
                shown_run.bury_dead_runs(client)
            if not run.begin(client):
                self._told = self.where.after
            self._follow(client, run)
            self.tally = Tally(
                self.where.state.statuses(self.where.sweep), publish=self.tally.publish
            )
            run.progress(client, self.tally, now=True)
            counts = self.where.state.counts(self.where.sweep)
            how = shown_run.ended(counts, stopped=bool(self.stop), error=self._error)
            run.end(client, self.where.state.outcomes(self.where.sweep, brief=True), how)
        self._works()

    def _follow(self, client: SyncPrefectClient, run: ShownRun) -> None:
        while True:
            over = self._ended.is_set()  # before the reading, so that nothing is left unread
            for event in self.where.state.events(self.where.sweep, self._told):
                if self._gone.is_set():
                    return
                run.tell(client, event)
                self._told = event.id
            if over:
                return
            run.progress(client, self.tally)
            run.show_activities(client, self.where.state.leases(self.where.sweep))
            self._works()
            if not self.stop and run.cancelled(client):
                self.stop.ask(StoppedElsewhere({"why": "cancelled in Prefect"}))
            self._ended.wait(_LOOK)

    def _find_server(self) -> str:
        given = self.environ.get("PREFECT_API_URL")
        if given:
            return given
        if not self._server_lives():
            if self._server is not None:
                self._server.stop()
            self._server = start_server(self.home, self.environ, self._gone)
            self._server.wait(self._gone)
        assert self._server is not None
        if self._gone.is_set():
            self._server.stop(0.0)  # nobody else does any more
            raise ServerFailed("it was started too late")
        return self._server.url

    def _server_lives(self) -> bool:
        return self._server is not None and self._server.lives

    @property
    def _whose(self) -> str:
        given = self.environ.get("PREFECT_API_URL")
        if not given:
            return "the embedded Prefect server"
        return f"the Prefect server {urlsplit(given).hostname}"  # never a password in it

    def _reason(self, error: Exception) -> str:
        """What is wrong with the server, in a few words."""
        if isinstance(error, ServerFailed):
            return str(error)
        if self._server is not None and (why := self._server.trouble()):
            return why
        import httpx

        if isinstance(error, httpx.TimeoutException):
            return f"{self._whose} does not answer in time"
        if isinstance(error, httpx.HTTPStatusError):
            answer = error.response
            return f"{self._whose} answers {answer.status_code} {answer.reason_phrase}"
        if isinstance(error, httpx.TransportError):
            return f"{self._whose} does not answer"
        return f"{self._whose} cannot be used: {type(error).__name__}"

    def _note(self, problem: str) -> None:
        """Note a change of what is wrong; those who follow the sweep see it. What the next try
        mends is not worth a line."""
        if self._gone.is_set():
            return
        self.problem = problem
        if (problem and self._failed > 1) or (self._noted and not problem):
            if problem != self._noted:
                self.where.state.note(self.where.sweep, Kind.NOTICE, {UNSHOWN: problem})
            self._noted = problem

    def _works(self) -> None:
        self._failed = 0
        self._note("")
