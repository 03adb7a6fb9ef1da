"""What a fleet shows in Prefect: task runs of models in a slot's flow run, the parent's artifacts.

Everything here is display: the work itself is plain functions that are handed in and know nothing
of Prefect. A server that is away stops none of it; Prefect's client sends what it missed later.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
from prefect import task
from prefect.artifacts import (
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import TagsContext, TaskRunContext
from prefect.exceptions import PrefectException
from prefect.states import Cancelled, Completed, Failed

from flows.observe.tally import Tally
from flows.prefect.artifacts import MOST_ROWS, outcome_rows, percent_done, progress_text
from flows.prefect.names import artifact_key
from flows.slot.loop import RunModel
from flows.slot.model_run import ModelResult
from flows.sweep.stop import Stop
from matrix.model import PlannedModel
from state.records import Outcome

_BAR_INTERVAL = 5.0


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
        percent, text = percent_done(self.tally), progress_text(self.tally)
        if self._progress is None:
            self._progress = create_progress_artifact(  # type: ignore[assignment]
                progress=percent, key=artifact_key(self.stamp, "progress"), description=text
            )
        else:
            update_progress_artifact(self._progress, progress=percent, description=text)

    def outcomes(self, rows: Iterator[Outcome]) -> None:
        """The table."""
        table = outcome_rows(rows)
        with suppress(httpx.HTTPError, PrefectException):
            create_table_artifact(
                table=table[:MOST_ROWS],
                key=artifact_key(self.stamp, "outcomes"),
                description=f"{len(table)} cells and exports of sweep {self.stamp}",
            )


def shown_as_tasks(stop: Stop, stamp: str) -> RunModel:
    """Give every model a task run of the flow run around it."""

    @task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{model}#{attempt}")
    def build_model(model: str, attempt: int) -> State[Any]:  # noqa: ARG001 - names the run
        _tag_task(known[model], stamp)
        return _state_of(pending[model](), stop)

    pending: dict[str, Callable[[], ModelResult]] = {}
    known: dict[str, PlannedModel] = {}

    def run_model(model: PlannedModel, attempt: int, work: Callable[[], ModelResult]) -> None:
        pending[model.name], known[model.name] = work, model
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


def quiet() -> None:
    """How a cell or model fared is said once, by us; Prefect would repeat it as errors."""
    for name in ("EventsWorker", "flow_runs", "task_runs", "flow_engine", "task_engine"):
        logging.getLogger(f"prefect.{name}").setLevel(logging.CRITICAL)
