"""Task runs of models in a slot's flow run.

They are display only: the work is a plain function that knows nothing of Prefect. A server that is
away stops none of it; Prefect's client sends later what the server missed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import TagsContext, TaskRunContext
from prefect.states import Cancelled, Completed, Failed

from flows.slot.loop import RunModel
from flows.slot.model_run import ModelResult
from flows.sweep.stop import Stop
from matrix.model import PlannedModel


def with_task_runs(stop: Stop, stamp: str) -> RunModel:
    """Run every model in a task run of the flow run around it."""

    @task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{model}#{attempt}")
    def build_model(model: str, attempt: int) -> State[Any]:  # noqa: ARG001 - names the run
        _tag_task_run(models[model], stamp)
        return _state_of(pending[model](), stop)

    # Not parameters of the task: Prefect would hash them, and record the plan with every run.
    pending: dict[str, Callable[[], ModelResult]] = {}
    models: dict[str, PlannedModel] = {}

    def run_model(model: PlannedModel, attempt: int, work: Callable[[], ModelResult]) -> None:
        pending[model.name], models[model.name] = work, model
        with TagsContext(current_tags=set()):  # see _tag_task_run
            build_model(model.name, attempt, return_state=True)
        del pending[model.name], models[model.name]

    return run_model


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
        return Cancelled(message="stopped; a resume takes it up")
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
