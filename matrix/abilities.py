"""What an engine can build, by task and architecture: data, so that a plan needs no exporter.

`data/abilities/ENGINE.json` is written by the engine's package (for optimum by
`python -m workers.optimum_engine.abilities`); a test compares it with what is installed. An
engine without such a file is assumed to build everything. `rules.toml` has the tasks that are
exported as another one: a ranker has the graph of a classifier.

An engine with `files` builds no architecture of Transformers, but models that are such files; its
table then names the libraries in place of architectures. With `providers`, it builds for these
execution providers alone.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from matrix.extensions import ENGINE, extensions
from matrix.model import Model, SourceKind
from matrix.nearest import hint, quote

DATA = Path(__file__).parent / "data" / "abilities"
READY = ".onnx"
"""The suffix of a ready ONNX file."""
WITH_PAST = "-with-past"


@dataclass(frozen=True, slots=True)
class Alias:
    """A task that has the graph of another one."""

    graphs: tuple[str, ...]
    """The tasks that it is exported for, the best first."""
    why: str


@dataclass(frozen=True, slots=True)
class Abilities:
    """The tasks and architectures that an engine knows."""

    engine: str
    tasks: tuple[str, ...]
    synonyms: Mapping[str, str]
    """Alternative names of tasks."""
    architectures: Mapping[str, tuple[str, ...]]
    """Model types of Transformers and the tasks that each can be exported for."""
    files: tuple[str, ...] = ()
    """Suffixes of the files that it builds from; empty: it exports what Transformers has."""
    providers: tuple[str, ...] = ()
    """The execution providers that it builds for; empty: any."""
    why: str = ""
    """Why these alone."""

    def takes(self, file: str) -> bool:
        """Whether it builds from such a file in place of an export."""
        return file.lower().endswith(self.files or (READY,))

    def builds_for(self, provider: str) -> bool:
        """Whether it builds for an execution provider."""
        return not self.providers or provider in self.providers

    def tasks_for(self, architecture: str, task: str) -> list[str]:
        """The tasks that the exporter knows of a model and that would do, the best first."""
        tasks = self.architectures.get(architecture, ())
        return [name for name in self._graphs(task) if name in tasks]

    def task_of_any(self, task: str) -> str:
        """The task that a model of unknown architecture is exported for."""
        return next((name for name in self._graphs(task) if self.knows(name)), task)

    def knows(self, task: str) -> bool:
        """Whether the exporter has a word for a task."""
        return self.synonyms.get(task, task).removesuffix(WITH_PAST) in self.tasks

    def fault(self, model: Model) -> tuple[str, str] | None:
        """What is wrong with the words of an entry, and what to do about it; None if nothing is.

        What cannot be built although its words are right is told by `matrix.coverage`.
        """
        if model.source.file and not self.files:
            return None  # a ready file needs no exporter
        if found := self.task_fault(model.task):
            return found
        if model.source.kind is SourceKind.RANDOM:
            return self._architecture_fault(model.source.ref, model.task)
        return None

    def task_fault(self, task: str) -> tuple[str, str] | None:
        """What is wrong with the name of a task."""
        if not task:
            return f"the engine {self.engine} needs a task", "see its reference for the tasks"
        if self.files and not self.knows(task):
            text = f"the engine {self.engine} does not build {quote(task)}"
            return text, f"it builds {', '.join(self.tasks)}"
        if self.knows(task) or task in aliases() or task in hub_tasks():
            return None
        known = (*self.tasks, *self.synonyms, *aliases())
        return f"unknown task {quote(task)}", hint(task, known)

    def _graphs(self, task: str) -> tuple[str, ...]:
        """The tasks that a task may be exported for, the best first: what rules.toml says of it
        comes before what the exporter takes the word for."""
        alias = aliases().get(task)
        own = () if task in self.synonyms else (task,)
        return (*own, *(alias.graphs if alias else ()), self.synonyms.get(task, task))

    def _architecture_fault(self, architecture: str, task: str) -> tuple[str, str] | None:
        tasks = self.architectures.get(architecture)
        if tasks is None:
            text = f"the engine {self.engine} cannot build the architecture {quote(architecture)}"
            return text, hint(architecture, self.architectures)
        if not self.tasks_for(architecture, task):
            wanted = self.synonyms.get(task, task)
            return f"{architecture} cannot be exported for {quote(wanted)}", hint(wanted, tasks)
        return None


@cache
def abilities_of(engine: str) -> Abilities | None:
    """The abilities of an engine; None if no file describes them."""
    file = DATA / f"{engine}.json"
    if not engine.isidentifier() or not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="ascii"))
    architectures = {name: tuple(tasks) for name, tasks in data["architectures"].items()}
    tasks = set(data["tasks"])
    for extension in extensions() if engine == ENGINE else ():
        architectures |= extension.tasks()
        tasks.update(*extension.tasks().values())
    return Abilities(
        engine,
        tuple(sorted(tasks)),
        data["synonyms"],
        architectures,
        files=tuple(data.get("files", ())),
        providers=tuple(data.get("providers", ())),
        why=data.get("why", ""),
    )


def engines() -> tuple[str, ...]:
    """The engines whose abilities are known."""
    return tuple(sorted(file.stem for file in DATA.glob("*.json")))


@cache
def rules() -> Mapping[str, Any]:
    """The tables of `rules.toml`."""
    return tomllib.loads((DATA / "rules.toml").read_text(encoding="ascii"))


@cache
def aliases() -> Mapping[str, Alias]:
    """Tasks that have the graph of another one."""
    return {row["task"]: Alias(tuple(row["as"]), row["why"]) for row in rules()["alias"]}


@cache
def hub_tasks() -> frozenset[str]:
    """Tasks of the Hub for which no exporter has a word."""
    return frozenset(rules()["tasks"])
