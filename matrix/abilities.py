"""What an engine can build, by task and architecture: data, so that a plan needs no exporter.

`data/abilities/ENGINE.json` is written by the engine's package (for optimum by
`python -m workers.optimum_engine.abilities`); a test compares it with what is installed. An
engine without such a file is assumed to build everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from matrix.model import Model, SourceKind
from matrix.nearest import hint, quote

DATA = Path(__file__).parent / "data" / "abilities"
WITH_PAST = "-with-past"


@dataclass(frozen=True, slots=True)
class Abilities:
    """The tasks and architectures that an engine knows."""

    engine: str
    tasks: tuple[str, ...]
    synonyms: Mapping[str, str]
    """Alternative names of tasks."""
    architectures: Mapping[str, tuple[str, ...]]
    """Model types of Transformers and the tasks that each can be exported for."""

    def fault(self, model: Model) -> tuple[str, str] | None:
        """Why the engine cannot build a model, and what to do about it; None if it can."""
        if model.source.file:
            return None  # a ready file needs no exporter
        if not model.task:
            return f"the engine {self.engine} needs a task", "see its reference for the tasks"
        task = self.synonyms.get(model.task, model.task)
        plain = task.removesuffix(WITH_PAST)
        if plain not in self.tasks:
            known = (*self.tasks, *self.synonyms)
            return f"unknown task {quote(model.task)}", hint(model.task, known)
        if model.source.kind is SourceKind.RANDOM:
            return self._architecture_fault(model.source.ref, task)
        return None

    def _architecture_fault(self, architecture: str, task: str) -> tuple[str, str] | None:
        tasks = self.architectures.get(architecture)
        if tasks is None:
            text = f"the engine {self.engine} cannot build the architecture {quote(architecture)}"
            return text, hint(architecture, self.architectures)
        if task not in tasks:
            return f"{architecture} cannot be exported for {quote(task)}", hint(task, tasks)
        return None


@cache
def abilities_of(engine: str) -> Abilities | None:
    """The abilities of an engine; None if no file describes them."""
    file = DATA / f"{engine}.json"
    if not engine.isidentifier() or not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="ascii"))
    architectures = {name: tuple(tasks) for name, tasks in data["architectures"].items()}
    return Abilities(engine, tuple(data["tasks"]), data["synonyms"], architectures)
