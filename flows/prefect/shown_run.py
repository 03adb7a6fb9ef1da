"""A run of a sweep on a Prefect server: a flow run, a task run for each leased model, artifacts.

All of it is written through the API, after the fact: no code that builds runs inside a flow or a
task. This module is imported once a server answers, because importing Prefect takes most of a
second. Requests are written out because Prefect's client takes flows and tasks, which do not exist
here (test_the_client_makes_runs_of_flows_and_tasks_only).
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
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

from flows.observe.failures import in_passing
from flows.observe.progress import SweepProgress
from flows.observe.summary import Summary
from flows.observe.views import event_text
from flows.output.masking import masked, masked_json
from machine.processes import claim
from matrix.errors import Exit, MillError
from matrix.model import Plan
from state.records import Event, Holder, Kind, Outcome

MOST_ROWS = 2000
"""Of the table of outcomes."""
FLOW_NAME = "modelmill-sweep"
_TASK_KEY = "build-model"
_PROGRESS_INTERVAL = 5.0
_TIMEOUT = 10.0
_OVER = frozenset({Kind.RELEASED, Kind.LOST})
_LONGEST = 1000
"""Characters of the message of a final state, which notifications repeat."""
_MOST_TAGS = 30
_LOGS_AT_ONCE = 200
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
    failed: dict[str, str] = field(default_factory=dict)
    """Its cells that failed under this lease, with the reasons."""
    activity: str = ""
    """What its engine was last shown to be doing, when that was, and by which artifact."""
    shown_at: float = 0.0
    artifact: str | None = None


@dataclass(slots=True)
class ShownRun:
    """What the server knows of a run. It outlives connections: a server that comes back is told
    what it missed, and recognizes by their keys the runs that it has."""

    plan: Plan
    sweep: int
    settings: Mapping[str, Any]
    """As the sweep has recorded them: the parameters of its flow run."""
    owners: str = ""
    """How the names of this process's slots begin."""
    flow_run: UUID | None = None
    """One of Prefect's own, to which task runs and artifacts are added; None: one is made."""
    _id: UUID | None = None
    """The one that was made."""
    _key: str = field(default_factory=lambda: f"modelmill-{uuid4()}")
    _attempts: dict[int, _Attempt] = field(default_factory=dict)
    """By the token of the lease."""
    _artifacts: dict[str, str] = field(default_factory=dict)
    """The ids of those that were made, by their keys."""
    _logs: list[dict[str, Any]] = field(default_factory=list)
    """Lines that the server does not have yet."""
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
            self._artifacts.clear()
            self._logs.clear()
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
            attempt.failed.pop(event.cell, None)
            if event.status.failed:
                attempt.failed[event.cell] = _reason(event)
        self.log(event, attempt.id)
        if event.kind in _OVER:
            client.set_task_run_state(attempt.id, _state_of(attempt, event), force=True)
            del self._attempts[event.token or 0]

    def show_progress(
        self, client: SyncPrefectClient, progress: SweepProgress, *, now: bool = False
    ) -> None:
        """Update the progress bar, every few seconds."""
        if not now and time.monotonic() < self._moved_at + _PROGRESS_INTERVAL:
            return
        counts = f"{progress.ended} of {progress.total} cells, {progress.failed} failed"
        told = "; ".join(filter(None, (counts, *progress.left_lines(), progress.remarks)))
        percent = 100.0 * progress.ended / progress.total if progress.total else 100.0
        shown = {"data": percent, "description": f"sweep {self.plan.stamp}: {told}"}
        self._show_named(client, "progress", shown, type="progress")
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
            attempt.artifact = self._show(client, attempt.artifact, {"data": text}, **kind)
            attempt.activity, attempt.shown_at = text, time.monotonic()

    def cancelled(self, client: SyncPrefectClient) -> bool:
        """Whether somebody cancelled the run in Prefect."""
        state = client.read_flow_run(self._id).state if self._id else None
        return state is not None and (state.is_cancelled() or state.is_cancelling())

    def log(self, event: Event, task_run: UUID | None = None) -> None:
        """Note the line about a cell that has ended, or failed."""
        if event.status is not None and (event.status.done or event.status.failed):
            level = logging.ERROR if event.status.failed else logging.INFO
            self.note(event_text(event), event.at, level, task_run)

    def note(
        self, text: str, at: float, level: int = logging.INFO, task_run: UUID | None = None
    ) -> None:
        """Note a line of the log of the flow run."""
        line = {"name": "modelmill", "level": level, "message": masked(text)}
        line["timestamp"] = datetime.fromtimestamp(at, UTC).isoformat()
        self._logs.append({**line, "task_run_id": task_run and str(task_run)})

    def send_logs(self, client: SyncPrefectClient) -> None:
        """Send the lines that were noted."""
        while self._logs:
            sent = self._logs[:_LOGS_AT_ONCE]
            client.create_logs([{**one, "flow_run_id": self._shown_at} for one in sent])
            del self._logs[: len(sent)]

    def show_result(
        self, client: SyncPrefectClient, outcomes: Iterator[Outcome], text: str
    ) -> None:
        """Show the table of outcomes, and the summary as Markdown."""
        rows, about = outcome_table(self.plan.stamp, outcomes)
        table = {"data": json.dumps(rows), "description": about}
        self._show_named(client, "outcomes", table, type="table")
        summary = {"data": text, "description": f"how sweep {self.plan.stamp} went"}
        self._show_named(client, "summary", summary, type="markdown")

    def end(self, client: SyncPrefectClient, state: State[Any]) -> None:
        """Tell how the run ended."""
        if self._id is not None:
            client.set_flow_run_state(self._id, state, force=True)

    def _create(self, client: SyncPrefectClient) -> None:
        flow = client.request("POST", "/flows/", json={"name": FLOW_NAME}).json()
        wanted = FlowRunCreate(
            flow_id=flow["id"],
            name=self.plan.stamp,
            parameters=masked_json({"stamp": self.plan.stamp, **_small(self.settings)}),
            tags=[*tags_of(self.plan, self.sweep), f"{PROCESS}{claim()}"],
            idempotency_key=self._key,
        )
        made = client.request("POST", "/flow_runs/", json=wanted.model_dump(mode="json")).json()
        self._id = UUID(made["id"])
        client.set_flow_run_state(self._id, Running(), force=True)

    def _start(self, client: SyncPrefectClient, event: Event) -> _Attempt:
        name = str(event.model)
        cells = [cell for one in self.plan.models if one.name == name for cell in one.cells]
        targets = {f"target:{cell.target.label}" for cell in cells}
        ids = (f"cell:{cell.id}" for cell in cells)
        wanted = TaskRunCreate(
            id=None,
            name=f"{name}#{(event.data or {}).get('n', 1)}",
            flow_run_id=self.flow_run or self._id,
            task_key=_TASK_KEY,
            dynamic_key=str(event.id),
            tags=[f"stamp:{self.plan.stamp}", f"model:{name}", *sorted(targets), *ids],
            state=to_state_create(Running()),
        )
        made = client.request("POST", "/task_runs/", json=wanted.model_dump(mode="json")).json()
        return _Attempt(UUID(made["id"]), name)

    @property
    def _shown_at(self) -> str:
        """The flow run that has all this."""
        return str(self.flow_run or self._id)

    def _show_named(
        self, client: SyncPrefectClient, kind: str, shown: dict[str, Any], **more: Any
    ) -> None:
        key = artifact_key(str(self.settings.get("catalog", "")), kind)
        self._artifacts[key] = self._show(client, self._artifacts.get(key), shown, key=key, **more)

    def _show(
        self, client: SyncPrefectClient, artifact: str | None, shown: dict[str, Any], **kind: Any
    ) -> str:
        """Change an artifact, or make one of this kind; returns its id."""
        if artifact is not None:
            client.request("PATCH", f"/artifacts/{artifact}", json=shown)  # type: ignore[arg-type]
            return artifact
        wanted = {**shown, **kind, "flow_run_id": self._shown_at}
        return str(client.request("POST", "/artifacts/", json=wanted).json()["id"])


def tags_of(plan: Plan, sweep: int) -> list[str]:
    """By which the runs of a sweep are found: stamp, targets, and models unless they are many."""
    targets = sorted({cell.target.label for model in plan.models for cell in model.cells})
    models = [model.name for model in plan.models]
    few = models if len(models) <= _MOST_TAGS else []
    return [
        f"stamp:{plan.stamp}",
        f"sweep:{sweep}",
        *(f"target:{label}" for label in targets[:_MOST_TAGS]),
        *(f"model:{name}" for name in few),
    ]


def _small(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that people read; a list of thousands is none."""
    return {name: value for name, value in settings.items() if len(str(value)) <= _LONGEST}


def _reason(event: Event) -> str:
    """Why a cell failed, in a line."""
    data = event.data or {}
    why = in_passing(str(data.get("failure", "")), str(data.get("message") or ""))
    return masked(f"{str(event.cell).rpartition('@')[2]}: {why}")


def _state_of(attempt: _Attempt, event: Event) -> State[Any]:
    if event.kind is Kind.LOST:
        return Crashed(message="its lease was lost; another slot takes the model over")
    if attempt.failed:
        reasons = "\n".join(attempt.failed.values())
        return Failed(message=f"{len(attempt.failed)} failed\n{reasons}"[:_LONGEST])
    if not (event.data or {}).get("done"):
        return Cancelled(message="stopped; resume the sweep to build it")
    return Completed(message="done")


def ended(summary: Summary, code: Exit | None, why: BaseException | None = None) -> State[Any]:
    """The final state of a flow run; notifications repeat its message.

    `code`: how the run ended; `why`: what stopped it.
    """
    reason = f"{why}" if isinstance(why, MillError) else f"{type(why).__name__}: {why}"
    lines = [*([reason] if why else []), *summary.lines()]
    if code is Exit.INTERRUPTED:
        lines.append(f"modelmill resume {summary.stamp}{summary.flags} continues it")
    text = masked("\n".join(lines))[:_LONGEST]
    if code is Exit.OK:
        return Completed(message=text)
    return Cancelled(message=text) if code is Exit.INTERRUPTED else Failed(message=text)


def artifact_key(catalog: str, kind: str) -> str:
    """The key of an artifact: Prefect keeps the history of each, so the sweeps of a catalog share
    it. It allows lower case, digits and dashes only."""
    name = re.split(r"[/\\]", catalog)[-1].lower().removesuffix(".toml")
    slug = re.sub(r"[^0-9a-z]+", "-", name).strip("-")
    return f"modelmill-{slug or 'sweep'}-{kind}"


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
