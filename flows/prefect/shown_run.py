"""A run of a sweep on a Prefect server: a flow run, a task run for each leased model, artifacts.

All of it is written through the API, after the fact: no code that builds runs inside a flow or a
task. This module is imported once a server answers, because importing Prefect takes most of a
second. Requests are written out because Prefect's client takes flows and tasks, which do not exist
here (test_the_client_makes_runs_of_flows_and_tasks_only).
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("DO_NOT_TRACK", "1")

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import FlowRunCreate, TaskRunCreate
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)
from prefect.states import Cancelled, Completed, Crashed, Failed, Running, to_state_create

from flows.observe.progress import SweepProgress
from machine.processes import claim
from matrix.model import PlannedModel
from matrix.status import Status
from state.records import Event, Holder, Kind, Outcome

MOST_ROWS = 2000
"""Of the table of outcomes."""
FLOW_NAME = "modelmill-sweep"
_TASK_KEY = "build-model"
_PROGRESS_INTERVAL = 5.0
_TIMEOUT = 10.0
_OVER = frozenset({Kind.RELEASED, Kind.LOST})
PROCESS = "process:"
"""How the tag begins that claims a run for the process that shows it."""


@contextmanager
def connected(url: str) -> Iterator[SyncPrefectClient]:
    """A client that fails at once; by default it tries again for minutes."""
    settings = {
        PREFECT_API_URL: url,
        PREFECT_CLIENT_MAX_RETRIES: 0,
        PREFECT_API_REQUEST_TIMEOUT: _TIMEOUT,
    }
    with temporary_settings(settings), get_client(sync_client=True) as client:
        yield client


@dataclass(slots=True)
class _Attempt:
    """A leased model as a task run."""

    id: UUID
    model: str
    failed: set[str] = field(default_factory=set)
    """Its cells that failed under this lease."""
    activity: str = ""
    """What its engine was last shown to be doing, when that was, and by which artifact."""
    shown_at: float = 0.0
    artifact: str | None = None


@dataclass(slots=True)
class ShownRun:
    """What the server knows of a run. It outlives connections: a server that comes back is told
    what it missed, and recognizes by their keys the runs that it has."""

    stamp: str
    models: Mapping[str, PlannedModel]
    owners: str
    """How the names of this process's slots begin."""
    flow_run: UUID | None = None
    """One of Prefect's own, to which task runs and artifacts are added; None: one is made."""
    _id: UUID | None = None
    """The one that was made."""
    _key: str = field(default_factory=lambda: f"modelmill-{uuid4()}")
    _attempts: dict[int, _Attempt] = field(default_factory=dict)
    """By the token of the lease."""
    _progress: str | None = None
    _moved_at: float = 0.0

    def begin(self, client: SyncPrefectClient) -> bool:
        """Create the flow run, or find it again. False: the server has forgotten it, and has to be
        told all events again."""
        if self.flow_run is not None:
            return True
        if self._id is None:
            self._create(client)
            return True
        try:
            client.read_flow_run(self._id)
        except ObjectNotFound:
            self._attempts.clear()
            self._progress = None
            self._create(client)
            return False
        return True

    def tell(self, client: SyncPrefectClient, event: Event) -> None:
        """Tell of the next event."""
        if event.kind is Kind.LEASED and (event.owner or "").startswith(self.owners):
            self._attempts[event.id] = self._start(client, event)
        attempt = self._attempts.get(event.token or 0)
        if attempt is None:
            return
        if event.cell and event.status is not None:
            (attempt.failed.add if event.status.failed else attempt.failed.discard)(event.cell)
        if event.kind in _OVER:
            client.set_task_run_state(attempt.id, _state_of(attempt, event), force=True)
            del self._attempts[event.token or 0]

    def show_progress(
        self, client: SyncPrefectClient, progress: SweepProgress, *, now: bool = False
    ) -> None:
        """Update the progress bar, every few seconds."""
        if not now and time.monotonic() < self._moved_at + _PROGRESS_INTERVAL:
            return
        key = artifact_key(self.stamp, "progress")
        shown = {"data": percent_done(progress), "description": progress_text(progress)}
        self._progress = self.show(client, self._progress, shown, key=key, type="progress")
        self._moved_at = time.monotonic()

    def show_activities(self, client: SyncPrefectClient, holders: Iterable[Holder]) -> None:
        """Show at each model's task run what its engine is doing, every few seconds."""
        for holder in holders:
            attempt, text = self._attempts.get(holder.token), f"{holder.activity}: `{holder.cell}`"
            if attempt is None or not holder.activity or text == attempt.activity:
                continue
            if time.monotonic() < attempt.shown_at + _PROGRESS_INTERVAL:
                continue
            kind = {"type": "markdown", "task_run_id": str(attempt.id)}
            attempt.artifact = self.show(client, attempt.artifact, {"data": text}, **kind)
            attempt.activity, attempt.shown_at = text, time.monotonic()

    def cancelled(self, client: SyncPrefectClient) -> bool:
        """Whether somebody cancelled the run in Prefect."""
        state = client.read_flow_run(self._id).state if self._id else None
        return state is not None and (state.is_cancelled() or state.is_cancelling())

    def show_outcomes(self, client: SyncPrefectClient, outcomes: Iterator[Outcome]) -> None:
        """Show the table of outcomes."""
        rows, text = outcome_table(self.stamp, outcomes)
        shown = {"data": json.dumps(rows), "description": text}
        self.show(client, None, shown, key=artifact_key(self.stamp, "outcomes"), type="table")

    def end(self, client: SyncPrefectClient, state: State[Any]) -> None:
        """Tell how the run ended."""
        if self._id is not None:
            client.set_flow_run_state(self._id, state, force=True)

    def _create(self, client: SyncPrefectClient) -> None:
        flow = client.request("POST", "/flows/", json={"name": FLOW_NAME}).json()
        wanted = FlowRunCreate(
            flow_id=flow["id"],
            name=self.stamp,
            tags=[f"stamp:{self.stamp}", f"{PROCESS}{claim()}"],
            idempotency_key=self._key,
        )
        made = client.request("POST", "/flow_runs/", json=wanted.model_dump(mode="json")).json()
        self._id = UUID(made["id"])
        client.set_flow_run_state(self._id, Running(), force=True)

    def _start(self, client: SyncPrefectClient, event: Event) -> _Attempt:
        name = str(event.model)
        model = self.models.get(name)
        targets = {f"target:{cell.target.label}" for cell in (model.cells if model else ())}
        wanted = TaskRunCreate(
            id=None,
            name=f"{name}#{(event.data or {}).get('n', 1)}",
            flow_run_id=self.flow_run or self._id,
            task_key=_TASK_KEY,
            dynamic_key=str(event.id),
            tags=[f"stamp:{self.stamp}", f"model:{name}", *sorted(targets)],
            state=to_state_create(Running()),
        )
        made = client.request("POST", "/task_runs/", json=wanted.model_dump(mode="json")).json()
        return _Attempt(UUID(made["id"]), name)

    def show(
        self, client: SyncPrefectClient, artifact: str | None, shown: dict[str, Any], **kind: Any
    ) -> str:
        """Change an artifact, or make one of this kind; returns its id."""
        if artifact is not None:
            client.request("PATCH", f"/artifacts/{artifact}", json=shown)  # type: ignore[arg-type]
            return artifact
        wanted = {**shown, **kind, "flow_run_id": str(self.flow_run or self._id)}
        return str(client.request("POST", "/artifacts/", json=wanted).json()["id"])


def _state_of(attempt: _Attempt, event: Event) -> State[Any]:
    if event.kind is Kind.LOST:
        return Crashed(message="its lease was lost; another slot takes the model over")
    if attempt.failed:
        return Failed(message=f"{len(attempt.failed)} failed")
    if not (event.data or {}).get("done"):
        return Cancelled(message="stopped; resume the sweep to build it")
    return Completed(message="done")


def ended(
    statuses: Collection[Status], *, stopped: bool, error: BaseException | None
) -> State[Any]:
    """The final state of the flow run; notifications repeat its message."""
    if error is not None:
        return Failed(message=f"{type(error).__name__}: {error}"[:500])
    if stopped:
        return Cancelled(message="stopped; resume it to continue")
    failed = sum(status.failed for status in statuses)
    return Completed(message=f"{failed} failed of {len(statuses)} cells and exports")


def artifact_key(stamp: str, kind: str) -> str:
    """The key of an artifact; Prefect allows lower case, digits and dashes only."""
    slug = re.sub(r"[^0-9a-z]+", "-", stamp.lower()).strip("-")
    return f"modelmill-{slug}-{kind}"


def percent_done(progress: SweepProgress) -> float:
    """How much of the sweep has ended."""
    return 100.0 * progress.ended / progress.total if progress.total else 100.0


def progress_text(progress: SweepProgress) -> str:
    """The text beside the progress bar."""
    counts = f"{progress.ended} of {progress.total} cells, {progress.failed} failed"
    return "; ".join(filter(None, (counts, *progress.left_lines(), progress.remarks)))


def outcome_table(stamp: str, outcomes: Iterable[Outcome]) -> tuple[list[dict[str, str]], str]:
    """The table, failures and their messages first, and its description."""
    ranked = sorted(outcomes, key=lambda one: (not one.status.failed, one.cell))
    rows = [
        {
            "cell": one.cell,
            "status": str(one.status),
            "version": one.version,
            "class": str(one.failure or ""),
            "message": (one.message or "")[:200],
        }
        for one in ranked
    ]
    return rows[:MOST_ROWS], f"{len(rows)} cells and exports of sweep {stamp}"
