"""Task runs of models in a slot's flow run.

They are display only: the work is a plain function that knows nothing of Prefect. A server that is
away stops none of it; Prefect's client sends later what the server missed.
"""

from __future__ import annotations

import contextvars
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import TagsContext, TaskRunContext
from prefect.states import Cancelled, Completed, Failed

from flows.fleet.parent_display import AWAY
from flows.slot.loop import RunModel
from flows.slot.model_run import ModelResult
from flows.sweep.stop import Stop
from matrix.model import PlannedModel

_INTERVAL = 5.0
"""Seconds between two changes of what a task run shows."""


def with_task_runs(stop: Stop, stamp: str) -> RunModel:
    """Run every model in a task run of the flow run around it."""

    @task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{model}#{attempt}")
    def build_model(model: str, attempt: int) -> State[Any]:  # noqa: ARG001 - names the run
        planned, work, activity = at_hand[model]
        _tag_task_run(planned, stamp)
        with activity_shown(activity):
            return _state_of(work(), stop)

    # Not parameters of the task: Prefect would hash them, and record the plan with every run.
    at_hand: dict[str, tuple[PlannedModel, Callable[[], ModelResult], Callable[[], str]]] = {}

    def run_model(
        model: PlannedModel,
        attempt: int,
        work: Callable[[], ModelResult],
        activity: Callable[[], str],
    ) -> None:
        at_hand[model.name] = (model, work, activity)
        with TagsContext(current_tags=set()):  # see _tag_task_run
            build_model(model.name, attempt, return_state=True)
        del at_hand[model.name]

    return run_model


@contextmanager
def activity_shown(activity: Callable[[], str]) -> Iterator[None]:
    """Show at the task run around us what the engine is doing, every few seconds."""
    over = threading.Event()

    def show() -> None:
        artifact, shown = None, ""
        while not over.wait(_INTERVAL):
            text = activity()
            if not text or text == shown:
                continue
            with suppress(*AWAY):  # the work does not wait for what shows it
                if artifact is None:
                    artifact = create_progress_artifact(_percent(text), description=text)
                else:
                    update_progress_artifact(artifact, _percent(text), text)  # type: ignore[arg-type]
                shown = text

    threading.Thread(target=contextvars.copy_context().run, args=(show,), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _percent(text: str) -> float:
    """How far `calibrating 40/128` is; 0 where a text has no such numbers."""
    found = re.search(r"\b(\d+)/([1-9]\d*)\b", text)
    return min(100.0, 100.0 * int(found[1]) / int(found[2])) if found else 0.0


def _tag_task_run(model: PlannedModel, stamp: str) -> None:
    """Tag the task run around us; the tags travel with its final state.

    Works around Prefect (test_a_task_asks_for_a_concurrency_limit_by_each_of_its_tags): for every
    tag that a task run begins with, Prefect asks for a concurrency limit, 0.3 s a model.
    """
    context = TaskRunContext.get()
    if context is not None:
        targets = {f"target:{cell.target.label}" for cell in model.cells}
        context.task_run.tags = [f"stamp:{stamp}", f"model:{model.name}", *sorted(targets)]


def _state_of(result: ModelResult, stop: Stop) -> State[Any]:
    if stop and not result.done:
        return Cancelled(message="stopped; resume the sweep to build it")
    if result.failed:
        return Failed(message=f"{result.failed} of {result.total} failed")
    return Completed(message=f"{result.total} done")


def quiet_prefect() -> None:
    """Keep Prefect from repeating on the console, as errors, what we print about failed models.

    Works around Prefect (test_a_failed_run_is_logged_as_an_error): no setting separates the states
    of runs from real errors.
    """
    for name in ("EventsWorker", "flow_runs", "task_runs", "flow_engine", "task_engine"):
        logging.getLogger(f"prefect.{name}").setLevel(logging.CRITICAL)
