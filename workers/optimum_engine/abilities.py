"""What the installed exporter can export, as the table that a plan is checked against.

`python -m workers.optimum_engine.abilities` writes the table anew; a test says when it is due.
"""

from __future__ import annotations

import json
from typing import Any

from matrix.abilities import DATA


def table() -> dict[str, Any]:
    """Tasks, their synonyms, and the tasks of every architecture that Transformers can make."""
    import optimum.exporters.onnx.model_configs  # noqa: F401 - fills the tables of TasksManager
    from optimum.exporters.tasks import TasksManager
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    architectures = {}
    for name in CONFIG_MAPPING_NAMES:
        try:
            tasks = TasksManager.get_supported_tasks_for_model_type(
                name, "onnx", library_name="transformers"
            )
        except KeyError:
            continue
        architectures[name] = sorted(tasks)
    return {
        "tasks": sorted(TasksManager.get_all_tasks()),
        "synonyms": dict(sorted(TasksManager._SYNONYM_TASK_MAP.items())),
        "architectures": dict(sorted(architectures.items())),
    }


def main() -> None:
    """Write the table."""
    DATA.mkdir(exist_ok=True)
    text = json.dumps(table(), indent=1) + "\n"
    (DATA / "optimum.json").write_text(text, encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
