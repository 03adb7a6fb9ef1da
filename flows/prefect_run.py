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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("DO_NOT_TRACK", "1")

from prefect import flow, tags, task
from prefect.artifacts import (
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import State
from prefect.context import TagsContext
from prefect.events.worker import EventsWorker
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    temporary_settings,
)
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.names import artifact_key
from flows.stop import Stop

FLOW_NAME = "modelmill-sweep"
_RECORDER_LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class ModelResult:
    """How a model fared, for its task run."""

    failed: int
    total: int
    cancelled: bool = False

    def state(self) -> State[Any]:
        """As Prefect says it; returned, not raised: a raised failure prints a traceback."""
        if self.cancelled:
            return Cancelled(message="stopped; a resume takes it up")
        if self.failed:
            return Failed(message=f"{self.failed} of {self.total} cells failed")
        return Completed(message=f"{self.total} cells")


Work = Callable[[], ModelResult]
RunModel = Callable[[str, int, Work], None]
"""Called with the model's name, the attempt and the work: shows the work while it runs."""


@dataclass(slots=True)
class Board:
    """The artifacts of the run: a progress bar while it goes, a table when it is over."""

    stamp: str
    _progress: UUID | None = field(default=None)

    def progress(self, percent: float, text: str) -> None:
        """Create or move the bar."""
        if self._progress is None:
            self._progress = create_progress_artifact(  # type: ignore[assignment]
                progress=percent, key=artifact_key(self.stamp, "progress"), description=text
            )
        else:
            update_progress_artifact(self._progress, progress=percent, description=text)

    def table(self, rows: Sequence[dict[str, Any]], text: str) -> None:
        """The outcomes."""
        create_table_artifact(
            table=list(rows), key=artifact_key(self.stamp, "outcomes"), description=text
        )


Body = Callable[[RunModel, Board], None]


def run_flow(url: str, stamp: str, run_tags: Sequence[str], body: Body, stop: Stop) -> None:
    """Run `body` as a flow run on the server at `url`; returns when it has ended."""
    _quiet()
    failure: list[BaseException] = []

    @task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{model}#{attempt}")
    def build_model(model: str, attempt: int) -> State[Any]:  # noqa: ARG001 - names the run
        return pending[model]().state()

    pending: dict[str, Work] = {}

    def run_model(model: str, attempt: int, work: Work) -> None:
        pending[model] = work
        # Every tag of a task is a concurrency limit to be asked for over the API: 0.3 s a model.
        with TagsContext(current_tags=set()):
            build_model(model, attempt, return_state=True)
        del pending[model]

    @flow(name=FLOW_NAME, flow_run_name=f"{stamp}", persist_result=False)
    def sweep() -> State[Any]:
        try:
            body(run_model, Board(stamp))
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            failure.append(error)
            return Failed(message=f"{type(error).__name__}: {error}"[:500])
        if stop:
            return Cancelled(message="stopped; a resume goes on")
        return Completed()

    def target() -> None:
        with tags(f"stamp:{stamp}", f"pid:{os.getpid()}", *run_tags):
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


def _quiet() -> None:
    """How a cell or model fared is said once, by us; Prefect would repeat it as errors."""
    for name in ("EventsWorker", "flow_runs", "task_runs", "flow_engine", "task_engine"):
        logging.getLogger(f"prefect.{name}").setLevel(logging.CRITICAL)


def settle_history(url: str, limit: float = _RECORDER_LIMIT) -> None:
    """Wait until the server has recorded what it was sent; a stop before that loses history."""
    EventsWorker.drain_all(timeout=limit)
    deadline = time.monotonic() + limit
    with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        before = (-1, -1)
        while time.monotonic() < deadline:
            now = _task_counts(client)
            if now == before and now[1] == 0:
                return
            before = now
            time.sleep(0.6)


def _task_counts(client: SyncPrefectClient) -> tuple[int, int]:
    def count(body: dict[str, Any]) -> int:
        reply = client._client.post("/task_runs/count", json=body)  # it has no public call for this
        return int(reply.json())

    running = {"task_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}}
    return count({}), count(running)


def bury_dead_runs(url: str, alive: Callable[[int], bool]) -> int:
    """Mark runs of killed sweeps Crashed: the server would show them running for ever."""
    buried = 0
    with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_filter=FlowFilter.model_validate({"name": {"any_": [FLOW_NAME]}}),
            flow_run_filter=FlowRunFilter.model_validate(
                {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}}
            ),
            limit=50,
        )
        for run in runs:
            pids = [
                int(tag[4:]) for tag in run.tags if tag.startswith("pid:") and tag[4:].isdigit()
            ]
            if pids and not alive(pids[0]):
                client.set_flow_run_state(
                    run.id, Crashed(message="its process is gone"), force=True
                )
                buried += 1
    return buried
