"""A sweep as Prefect sees it: one flow run, a task run per model, artifacts for the outcome.

Imported only when a sweep starts (Prefect takes most of a second). Everything here is display and
routing: the work itself is plain functions that are handed in and know nothing of Prefect.

The flow runs in a thread of its own: in the main thread Prefect would take over the signal
handlers. Its heartbeat is off because joining it costs every run a second.
"""

from __future__ import annotations

import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("DO_NOT_TRACK", "1")

import httpx
from prefect import flow, tags, task
from prefect.artifacts import (
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext, TagsContext, TaskRunContext
from prefect.events.worker import EventsWorker
from prefect.exceptions import PrefectException
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    temporary_settings,
)
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.local import Workshop
from flows.model_run import ModelResult
from flows.names import artifact_key
from flows.slot import RunModel, run_slots
from flows.stop import Stop
from flows.tally import Tally
from matrix.model import PlannedModel
from state.owner import started
from state.records import Outcome

FLOW_NAME = "modelmill-sweep"
_RECORDER_LIMIT = 30.0
_LOOK_AGAIN = 0.1
_BAR_INTERVAL = 5.0
_MOST_ROWS = 2000
_UNFINISHED = {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}


def _state_of(result: ModelResult, stop: Stop) -> State[Any]:
    """Returned by the task, not raised: a raised failure prints a traceback."""
    if stop and not result.done:
        return Cancelled(message="stopped; a resume takes it up")
    if result.failed:
        return Failed(message=f"{result.failed} of {result.total} failed")
    return Completed(message=f"{result.total} done")


@dataclass(slots=True)
class Board:
    """The artifacts of the run: a progress bar while it goes, a table when it is over."""

    stamp: str
    tally: Tally
    _progress: UUID | None = field(default=None)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Move the bar from a thread of its own while the block runs."""
        over = threading.Event()

        def move() -> None:
            while not over.wait(_BAR_INTERVAL):
                self._move()

        thread = threading.Thread(target=contextvars.copy_context().run, args=(move,))
        self._move()
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._move()

    def _move(self) -> None:
        # A picture of the work is not worth the work: a server that is away misses it.
        with suppress(httpx.HTTPError, PrefectException):
            self._draw()

    def _draw(self) -> None:
        tally = self.tally
        percent = 100.0 * tally.ended / tally.total if tally.total else 100.0
        counts = f"{tally.ended} of {tally.total} cells, {tally.failed} failed"
        text = "; ".join(filter(None, (counts, *tally.outlook(), tally.told)))
        if self._progress is None:
            self._progress = create_progress_artifact(  # type: ignore[assignment]
                progress=percent, key=artifact_key(self.stamp, "progress"), description=text
            )
        else:
            update_progress_artifact(self._progress, progress=percent, description=text)

    def outcomes(self, rows: Iterator[Outcome]) -> None:
        """The table; failures come first and say why."""
        ranked = sorted(rows, key=lambda one: (not one.status.failed, one.cell))
        table = [
            {
                "cell": one.cell,
                "status": str(one.status),
                "version": one.version,
                "class": str(one.failure or ""),
                "message": (one.message or "")[:200],
            }
            for one in ranked[:_MOST_ROWS]
        ]
        with suppress(httpx.HTTPError, PrefectException):
            create_table_artifact(
                table=table,
                key=artifact_key(self.stamp, "outcomes"),
                description=f"{len(ranked)} cells and exports of sweep {self.stamp}",
            )


@dataclass(slots=True)
class Shown:
    """What of a sweep was sent to the server."""

    run: UUID | None = None
    tasks: int = 0


def shown_as_tasks(stop: Stop, stamp: str, shown: Shown | None = None) -> RunModel:
    """Give every model a task run of the flow run around it, counted in `shown`."""
    sent = shown or Shown()

    @task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{model}#{attempt}")
    def build_model(model: str, attempt: int) -> State[Any]:  # noqa: ARG001 - names the run
        _tag_task(known[model], stamp)
        return _state_of(pending[model](), stop)

    pending: dict[str, Callable[[], ModelResult]] = {}
    known: dict[str, PlannedModel] = {}
    counting = threading.Lock()

    def run_model(model: PlannedModel, attempt: int, work: Callable[[], ModelResult]) -> None:
        pending[model.name], known[model.name] = work, model
        with counting:
            sent.tasks += 1
        # Every tag that a task begins with is a concurrency limit to be asked for: 0.3 s a model.
        with TagsContext(current_tags=set()):
            build_model(model.name, attempt, return_state=True)
        del pending[model.name], known[model.name]

    return run_model


def _tag_task(model: PlannedModel, stamp: str) -> None:
    """Tags that are given while it runs cost nothing; they travel with the state at its end."""
    context = TaskRunContext.get()
    if context is not None:
        targets = {f"target:{cell.target.label}" for cell in model.cells}
        context.task_run.tags = [f"stamp:{stamp}", f"model:{model.name}", *sorted(targets)]


def _in_short(opened: Workshop) -> str:
    """The message of a sweep that ran to its end; what notifications say."""
    counts = opened.shop.state.counts(opened.shop.sweep_id)
    failed = sum(count for status, count in counts.items() if status.failed)
    return f"{failed} failed of {sum(counts.values())} cells and exports"


def run_flow(url: str, stamp: str, opened: Workshop, tally: Tally, stop: Stop) -> Shown:
    """Run the slots as a flow run on the server at `url`; returns when it has ended."""
    quiet()
    failure: list[BaseException] = []
    shown = Shown()

    @flow(name=FLOW_NAME, flow_run_name=f"{stamp}", persist_result=False)
    def sweep() -> State[Any]:
        try:
            context = FlowRunContext.get()
            if context is not None and context.flow_run is not None:
                shown.run = context.flow_run.id
            board = Board(stamp, tally)
            state, sweep_id = opened.shop.state, opened.shop.sweep_id
            with board.kept():
                run_slots(opened.shop, opened.benches, shown_as_tasks(stop, stamp, shown))
                # The tally follows the events a moment behind; the bar is to end where they do.
                board.tally = Tally(state.statuses(sweep_id), publish=tally.publish)
            board.outcomes(state.outcomes(sweep_id, brief=True))
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            failure.append(error)
            return Failed(message=f"{type(error).__name__}: {error}"[:500])
        if stop:
            return Cancelled(message="stopped; a resume goes on")
        return Completed(message=_in_short(opened))

    def target() -> None:
        with tags(f"stamp:{stamp}", _process_tag()):
            sweep(return_state=True)

    with temporary_settings({PREFECT_API_URL: url, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(target,), name="sweep-flow"
        )
        thread.start()
        while thread.is_alive():
            thread.join(0.2)  # short, so that signal handlers get their turn
    if failure:
        raise failure[0]
    return shown


def quiet() -> None:
    """How a cell or model fared is said once, by us; Prefect would repeat it as errors."""
    for name in ("EventsWorker", "flow_runs", "task_runs", "flow_engine", "task_engine"):
        logging.getLogger(f"prefect.{name}").setLevel(logging.CRITICAL)


def settle_history(url: str, shown: Shown, limit: float = _RECORDER_LIMIT) -> None:
    """Wait until the server has recorded what it was sent; a stop before that loses history.

    Only of this flow run: what others do, or left behind when they died, is not waited for.
    """
    EventsWorker.drain_all(timeout=limit)
    deadline = time.monotonic() + limit
    with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        while time.monotonic() < deadline:
            recorded, unfinished = _task_counts(client, shown.run)
            if recorded >= shown.tasks and not unfinished:
                return
            time.sleep(_LOOK_AGAIN)


def _task_counts(client: SyncPrefectClient, run: UUID | None) -> tuple[int, int]:
    ours = {"flow_runs": {"id": {"any_": [str(run)] if run else []}}}

    def count(body: dict[str, Any]) -> int:
        # The client has no public call for this.
        reply = client._client.post("/task_runs/count", json={**ours, **body})
        return int(reply.json())

    return count({}), count({"task_runs": _UNFINISHED})


def bury_dead_runs(url: str) -> int:
    """Mark runs of killed sweeps Crashed: the server would show them running for ever."""
    buried = 0
    with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_filter=FlowFilter.model_validate({"name": {"any_": [FLOW_NAME]}}),
            flow_run_filter=FlowRunFilter.model_validate(_UNFINISHED),
            limit=50,
        )
        for run in runs:
            if any(_is_dead(tag) for tag in run.tags):
                _bury(client, run.id)
                buried += 1
    return buried


def _bury(client: SyncPrefectClient, run: UUID) -> None:
    state: State[Any] = Crashed(message="its process is gone")
    tasks = client.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [run]}}),
        task_run_filter=TaskRunFilter.model_validate(_UNFINISHED),
    )
    for task_run in tasks:
        client.set_task_run_state(task_run.id, state, force=True)
    client.set_flow_run_state(run, state, force=True)


def _process_tag() -> str:
    return f"process:{os.getpid()}:{started(os.getpid())}"


def _is_dead(tag: str) -> bool:
    kind, _, process = tag.partition(":")
    pid, _, when = process.partition(":")
    return kind == "process" and pid.isdigit() and started(int(pid)) != when
