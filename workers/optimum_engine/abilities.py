"""The table of what the installed exporter can export; plans are checked against it.

`python -m workers.optimum_engine.abilities` writes the table; a test says when it is outdated.
"""

from __future__ import annotations

import json
from typing import Any

from matrix.abilities import DATA
from workers.sources.tasks import tasks_manager


def table() -> dict[str, Any]:
    """Tasks, their synonyms, and the tasks of every architecture that Transformers can make."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    manager = tasks_manager()
    architectures = {}
    for name in CONFIG_MAPPING_NAMES:
        try:
            tasks = manager.get_supported_tasks_for_model_type(
                name, "onnx", library_name="transformers"
            )
        except KeyError:
            continue
        architectures[name] = sorted(tasks)
    return {
        "tasks": sorted(manager.get_all_tasks()),
        "synonyms": dict(sorted(manager._SYNONYM_TASK_MAP.items())),
        "architectures": dict(sorted(architectures.items())),
    }


def main() -> None:
    """Write the table."""
    DATA.mkdir(exist_ok=True)
    text = json.dumps(table(), indent=1) + "\n"
    (DATA / "optimum.json").write_text(text, encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
