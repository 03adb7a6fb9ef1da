"""Optimum's table of tasks and architectures that it can export."""

from __future__ import annotations

from typing import Any

from workers.sources.errors import export_error, listed


def tasks_manager() -> Any:
    """Optimum's `TasksManager` with its ONNX table filled.

    The table fills as a side effect of importing the ONNX configurations. A stage can be the first
    thing that a process does, so no stage may rely on an earlier one to have imported them.
    """
    import optimum.exporters.onnx.model_configs  # noqa: F401 - fills the table
    from optimum.exporters.tasks import TasksManager

    return TasksManager


def exporter_task(task: str) -> str:
    """The exporter's word for a task. Raises `StageError` for one it does not know."""
    manager = tasks_manager()
    plain = str(manager.map_from_synonym(task))
    known = set(manager.get_all_tasks())
    if plain.removesuffix("-with-past") not in known:
        raise export_error(f"the exporter knows no task '{task}'", f"known tasks: {listed(known)}")
    return plain


def check_supported(model_type: str, task: str) -> None:
    """Raise `StageError` unless the exporter can export this architecture for this task."""
    try:
        tasks = tasks_manager().get_supported_tasks_for_model_type(
            model_type, "onnx", library_name="transformers"
        )
    except KeyError as error:
        raise export_error(
            f"the exporter does not support the architecture '{model_type}'",
            "see Optimum's list of ONNX architectures",
        ) from error
    if task not in tasks:
        raise export_error(
            f"the exporter cannot export {model_type} for '{task}'",
            f"for {model_type} it knows: {listed(tasks)}",
        )
