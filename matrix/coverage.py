"""Whether a model can be built, told before anything is downloaded.

What decides is an entry's model type and task, and its config.json where that can be read: first
the exporter's table (`matrix.abilities`), then what else can be true of the model, in this order.

    its task has the graph of another one       it is exported for that one
    the exporter lists it, but it fails         `[[fault]]` of rules.toml says why
    the zoo cannot show that it builds          `[[unproven]]`: neither promised nor refused
    a package is missing from the extra `build` `[[package]]`
    Transformers has it, the exporter does not  `[[lacking]]` says why; the nearest is named
    Transformers lacks a head for the task      the entry's label is wrong
    it is no model of Transformers              `[[foreign]]`, or code of its repository

An engine that builds from files of other libraries is asked for the file that the entry names. Of
an engine without a table, `measured.json` knows which models of the zoo it has built.

Every pair of architecture and task that is said to build has an entry in the packaged catalog
`zoo`, which is built and verified: `measured.json` has the results.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from matrix.abilities import DATA, READY, Abilities, abilities_of, aliases, engines, rules
from matrix.model import Model, SourceKind

HEADS = DATA.parent / "heads.json"
MEASURED = DATA.parent / "measured.json"
CPU = "mlas_cpu"
VERIFIED = "verified"
UNKNOWN_TYPES = frozenset({"", "unknown", "none", "null"})
Json = Mapping[str, Any]


class Verdict(StrEnum):
    """What can be said of an entry."""

    BUILDS = "builds"
    BUILDS_AS = "builds-as"
    PACKAGE = "needs-package"
    EXPORTER = "needs-exporter"
    CODE = "needs-remote-code"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


BUILDABLE = frozenset({Verdict.BUILDS, Verdict.BUILDS_AS, Verdict.PACKAGE, Verdict.UNKNOWN})
"""A plan builds these: packages can be installed, and of unknown models the build finds out."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What can be said of one entry, and why."""

    verdict: Verdict
    architecture: str
    task: str = ""
    """The task that it is exported for."""
    why: str = ""
    hint: str = ""
    extra: str = ""
    """The extra of modelmill that installs the missing package."""
    nearest: str = ""
    """`ARCHITECTURE:TASK` of the nearest model that builds."""


def cover(model: Model, engine: str, config: Json | None = None) -> Coverage:
    """What can be said of an entry, with its config.json if that is known."""
    architecture = _architecture(model, config)
    abilities = abilities_of(engine)
    if model.overrides.skip:
        return Coverage(Verdict.SKIPPED, architecture, why=model.overrides.skip)
    if abilities and abilities.files:
        return _of_files(model, architecture, abilities)
    if model.source.file and (abilities or model.source.file.lower().endswith(READY)):
        return _of_ready_file(model, architecture, engine)
    if abilities is None:
        return _measured(model.task, architecture, engine)
    found = _foreign(model, architecture) or _code(model, config, architecture)
    if found is None and (fault := abilities.task_fault(model.task)):
        found = Coverage(Verdict.IMPOSSIBLE, architecture, model.task, *fault)
    if found is None and architecture in UNKNOWN_TYPES:
        why = "neither the entry nor a config on this machine names its architecture"
        hint = "give model_type in the catalog"
        task = abilities.task_of_any(model.task)
        found = Coverage(Verdict.UNKNOWN, architecture, task, why, hint)
    return found or _of_transformers(model.task, architecture, abilities, config)


def _architecture(model: Model, config: Json | None) -> str:
    if model.source.kind is SourceKind.RANDOM:
        return model.source.ref
    named = (config or {}).get("model_type")
    return named if isinstance(named, str) and named else spelled(model.model_type.strip())


def spelled(name: str) -> str:
    """The model type that a table means: some write `XLM_RoBERTa` or `XLMRobertaConfig` for
    `xlm-roberta`."""
    return name if name in heads() else _spellings().get(_folded(name), name)


def _folded(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "").removesuffix("config")


@cache
def _spellings() -> Mapping[str, str]:
    return {_folded(name): name for name in heads()}


def _measured(task: str, architecture: str, engine: str) -> Coverage:
    """For an engine without a table: what a sweep of the zoo with it has shown."""
    known = measured().get(engine)
    if known and known[CPU].get((architecture, task)) == VERIFIED:
        return Coverage(Verdict.BUILDS, architecture, task)
    lacks = "no table of what it builds" if known is None else "not built a tiny model of this"
    return Coverage(Verdict.UNKNOWN, architecture, task, f"the engine {engine} has {lacks}")


def _of_ready_file(model: Model, architecture: str, engine: str) -> Coverage:
    """An entry that names a file in place of a model to export."""
    file = str(model.source.file)
    if file.lower().endswith(READY):
        why = "a ready ONNX file needs no exporter"
        return Coverage(Verdict.BUILDS, architecture, model.task, why)
    able = next(name for name in engines() if (one := abilities_of(name)) and one.takes(file))
    why = f"the engine {engine} cannot read {file}, the engine {able} can"
    return Coverage(Verdict.IMPOSSIBLE, architecture, model.task, why, f"--engine {able}")


def _of_files(model: Model, architecture: str, abilities: Abilities) -> Coverage:
    """For an engine that builds from files of other libraries: whether the entry names one."""
    task, file, engine = model.task, model.source.file, abilities.engine
    libraries, suffixes = ", ".join(abilities.architectures), ", ".join(abilities.files)
    known = architecture in abilities.architectures or architecture in UNKNOWN_TYPES
    if fault := abilities.task_fault(task):
        return Coverage(Verdict.IMPOSSIBLE, architecture, task, *fault)
    if not known or model.source.kind is SourceKind.RANDOM:
        why = f"the engine {engine} builds models of {libraries}"
    elif not file:
        why = f"only its files tell whether it has one that the engine {engine} reads ({suffixes})"
        hint = 'name it in the catalog, e.g. file = "model.skops"'
        return Coverage(Verdict.UNKNOWN, architecture, task, why, hint)
    elif abilities.takes(file):
        return Coverage(Verdict.BUILDS, architecture, task, f"the engine {engine} reads {file}")
    else:
        why = f"the engine {engine} reads {suffixes}, not {file}"
    hint = "choose another --engine, or give a file that it reads"
    return Coverage(Verdict.IMPOSSIBLE, architecture, task, why, hint)


def _of_transformers(
    task: str, architecture: str, abilities: Abilities, config: Json | None
) -> Coverage:
    known = abilities.tasks_for(architecture, task)
    if not known:
        return _not_exported(task, architecture, abilities)
    graph = next((name for name in known if builds(architecture, name, abilities)), known[0])
    if fault := _why("fault", architecture, graph):
        nearest = nearest_to(architecture, graph, abilities)
        return Coverage(Verdict.EXPORTER, architecture, graph, fault, nearest=nearest)
    if missing := _package(architecture, graph, config):
        return Coverage(
            Verdict.PACKAGE, architecture, graph, f"{missing['package']}: {missing['why']}",
            f"it is in the extra {missing['extra']}", extra=missing["extra"],
        )  # fmt: skip
    if why := _why("unproven", architecture, graph):
        return Coverage(Verdict.UNKNOWN, architecture, graph, f"not in the zoo: {why}")
    if graph == task:
        return Coverage(Verdict.BUILDS, architecture, graph)
    alias = aliases().get(task)
    why = alias.why if alias else f"{graph} is the exporter's name for it"
    return Coverage(Verdict.BUILDS_AS, architecture, graph, why)


def _not_exported(task: str, architecture: str, abilities: Abilities) -> Coverage:
    known = heads().get(architecture)
    if known is None:
        why = f"the supported Transformers has no architecture {architecture}:"
        why += " it is newer, or its code is in its repository"
        hint = "set remote_code in the catalog, or give a ready ONNX file as onnx"
        return Coverage(Verdict.CODE, architecture, task, why, hint)
    wanted = [abilities.synonyms.get(task, task)]
    if alias := aliases().get(task):
        wanted += alias.graphs
    nearest = nearest_to(architecture, wanted[-1], abilities)
    exported = abilities.architectures.get(architecture, ())
    if exported and not set(wanted) & set(known):
        why = f"Transformers has no head of {architecture} for {task}; is the task right?"
        hint = f"it is exported for {', '.join(_plain(exported))}"
        return Coverage(Verdict.IMPOSSIBLE, architecture, task, why, hint, nearest=nearest)
    what = f"{architecture} for {task}" if exported else architecture
    why = _lacking(architecture, wanted) or f"the exporter does not have {what}"
    return Coverage(Verdict.EXPORTER, architecture, task, why, nearest=nearest)


def _plain(tasks: tuple[str, ...]) -> Iterator[str]:
    return (task for task in tasks if not task.endswith("-with-past"))


def _foreign(model: Model, architecture: str) -> Coverage | None:
    """Another library's word in place of an architecture, or a task of such a library."""
    if architecture in heads():
        return None
    word = architecture.casefold()
    for row in rules()["foreign"]:
        if word in row["words"] or (word in UNKNOWN_TYPES and model.task in row["tasks"]):
            return Coverage(Verdict.IMPOSSIBLE, architecture, model.task, row["why"], row["hint"])
    return None


def _code(model: Model, config: Json | None, architecture: str) -> Coverage | None:
    """A config that names classes of its own repository, of an architecture not in Transformers."""
    if architecture in heads() or not (model.remote_code or (config or {}).get("auto_map")):
        return None
    why = "its config names classes of its own repository"
    if model.remote_code:
        return Coverage(Verdict.UNKNOWN, architecture, model.task, why, "--allow-remote-code")
    hint = "set remote_code in the catalog after reading the code"
    return Coverage(Verdict.CODE, architecture, model.task, why, hint)


def _lacking(architecture: str, tasks: Iterable[str]) -> str:
    """Why a model that Transformers has is not exported, where that is known."""
    for row in rules()["lacking"]:
        named = row["architectures"].get(architecture)
        if named is not None and (not named or set(named) & set(tasks)):
            return str(row["why"])
    return ""


def _why(table: str, architecture: str, task: str) -> str:
    """What a table of rules.toml says of a pair; empty: nothing."""
    return next((str(row["why"]) for row in _rows(table, architecture, task)), "")


def _package(architecture: str, task: str, config: Json | None) -> Json | None:
    for row in _rows("package", architecture, task):
        if config is None or config.get(row.get("unless", "")) is not False:
            return row
    return None


def _rows(table: str, architecture: str, task: str) -> Iterator[Json]:
    """The rows of a table that are about a pair; one that names no tasks is about all."""
    for row in rules()[table]:
        if architecture in row.get("architectures", [architecture]) and (
            task in row.get("tasks", [task])
        ):
            yield row


def builds(architecture: str, task: str, abilities: Abilities) -> bool:
    """Whether a pair of the exporter's table is said to build."""
    listed = task in abilities.architectures.get(architecture, ())
    withdrawn = any(_why(table, architecture, task) for table in ("fault", "unproven"))
    return listed and not withdrawn


def nearest_to(architecture: str, task: str, abilities: Abilities) -> str:
    """The architecture most like this one, by heads and then by name, that builds for a task."""
    able = [name for name in abilities.architectures if builds(name, task, abilities)]
    own = set(heads().get(architecture, ()))

    def likeness(name: str) -> tuple[int, float]:
        shared = len(own & set(heads().get(name, ())))
        return shared, difflib.SequenceMatcher(None, architecture, name).ratio()

    return f"{max(able, key=likeness)}:{task}" if able else ""


def proven(architecture: str, task: str, engine: str) -> dict[str, str]:
    """Of a pair's tiny model: target -> `verified`, or what it lacks. It says what the engine can
    build, and little of a trained model."""
    found = measured().get(engine, {})
    pair = architecture, task
    return {target: told[pair] for target, told in found.items() if pair in told}


@cache
def measured() -> Mapping[str, Mapping[str, Mapping[tuple[str, str], str]]]:
    """The results of the zoo's models: engine, target, architecture and task."""
    data = json.loads(MEASURED.read_text(encoding="ascii"))
    return {
        engine: {
            target: {
                (architecture, task): result
                for result, by_architecture in by_result.items()
                for architecture, tasks in by_architecture.items()
                for task in tasks.split()
            }
            for target, by_result in by_target.items()
        }
        for engine, by_target in data.items()
    }


@cache
def heads() -> Mapping[str, tuple[str, ...]]:
    """The tasks for which Transformers has a model class, by architecture."""
    data = json.loads(HEADS.read_text(encoding="ascii"))
    return {name: tuple(tasks) for name, tasks in data.items()}
