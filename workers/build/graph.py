"""The stage graph of a cell: its runs, the inputs of each, and the files of the package.

Pure: `walk` goes through the engine's plan and asks `resolve` for the action of every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from matrix.digest import FileEntry, files_digest, value_digest
from matrix.model import Cell
from matrix.status import FailureClass
from workers.engine import SOURCE, BuildPlan, StageSpec
from workers.errors import BuildFailed
from workers.store.actions import Action

EXPORT = "export"
INPUTS = "inputs"
COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OF_GRAPHS = (".onnx", ".data")


@dataclass(frozen=True)
class StageTask:
    """One run of a stage: its key and its input files."""

    spec: StageSpec
    component: str
    parts: Mapping[str, Any]
    """Of its key: they tell a later run what differs."""
    inputs: Mapping[str, tuple[FileEntry, ...]]

    @cached_property
    def key(self) -> str:
        """The digest of everything that can change a byte of its outputs."""
        return value_digest(self.parts)


@dataclass(frozen=True, slots=True)
class Output:
    """The outputs of a stage for all its components."""

    by_component: Mapping[str, Action]

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """All files; those of a component are below its folder."""
        return tuple(
            replace(file, path=f"{name}/{file.path}") if name else file
            for name, action in self.by_component.items()
            for file in action.files
        )

    def seen_by(self, component: str) -> tuple[FileEntry, ...]:
        """The part that a run for one component gets."""
        if not component:
            return self.files
        if component in self.by_component:
            return self.by_component[component].files
        return within(self.files, component) or self.files


@dataclass(frozen=True, slots=True)
class StageResults:
    """The stages of a plan with their outputs."""

    engine: str
    tools: Mapping[str, str]
    plan: BuildPlan
    tasks: tuple[tuple[StageTask, Action], ...]
    outputs: Mapping[str, Output]
    components: tuple[str, ...]
    origin: Mapping[str, Any] | None = None
    """The manifest of the package that these stages began with; None: with the source."""
    members: Mapping[str, tuple[Cell, StageResults]] = field(default_factory=dict)
    """Of a context group: by name, the portable cells that it holds, and what they are made of."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Of a context group: the cells that it lacks, and why."""

    @property
    def package(self) -> tuple[FileEntry, ...]:
        """The files of the package: those of the last stage, and those of no component."""
        final = [name for name in self.outputs if name != INPUTS][-1]
        files = {file.path: file for file in self.outputs[final].files}
        if EXPORT in self.outputs and final != EXPORT:
            for file in outside(self.outputs[EXPORT].files, self.components):
                files.setdefault(file.path, file)
        return tuple(files[path] for path in sorted(files))

    @property
    def package_digest(self) -> str:
        """Of the files of the package."""
        return files_digest(self.package)

    @property
    def keys(self) -> Mapping[str, Mapping[str, Any]]:
        """The keys of all runs with their parts, by `STAGE:COMPONENT`."""
        return {
            f"{task.spec.name}:{task.component}": {"key": task.key, "parts": task.parts}
            for task, _action in self.tasks
        }

    def files_of(self, stage: str) -> tuple[FileEntry, ...]:
        """The files of a stage; none if there is no such stage."""
        return self.outputs[stage].files if stage in self.outputs else ()

    def up_to(self, stage: str) -> StageResults:
        """The results as if the plan ended with that stage."""
        names = list(self.outputs)
        kept = names[: names.index(stage) + 1]
        return replace(
            self,
            tasks=tuple(pair for pair in self.tasks if pair[0].spec.name in kept),
            outputs={name: self.outputs[name] for name in kept},
        )


def outside(files: tuple[FileEntry, ...], components: tuple[str, ...]) -> Iterator[FileEntry]:
    """The files of an export that belong to no component: neither graphs nor weights."""
    for file in files if components else ():
        if file.path.partition("/")[0] not in components and not file.path.endswith(_OF_GRAPHS):
            yield file


def within(files: tuple[FileEntry, ...], folder: str) -> tuple[FileEntry, ...]:
    """The files below a folder, by their paths inside it."""
    head = f"{folder}/"
    return tuple(
        replace(file, path=file.path.removeprefix(head))
        for file in files
        if file.path.startswith(head)
    )


def key_parts(
    engine: str,
    tools: Mapping[str, str],
    spec: StageSpec,
    component: str,
    inputs: Mapping[str, str],
) -> dict[str, Any]:
    """What the key of one stage run is made of; `inputs` are tree digests (the source: its own
    digest)."""
    return {
        "engine": engine,
        "tools": {name: tools[name] for name in sorted(spec.tools)},
        "stage": spec.name,
        "component": component,
        "params": dict(spec.params),
        "inputs": dict(sorted(inputs.items())),
    }


def walk(
    engine: str,
    tools: Mapping[str, str],
    plan: BuildPlan,
    resolve: Callable[[StageTask], Action | None],
    *,
    until: str = "",
    begun: StageResults | None = None,
) -> StageResults | None:
    """Resolve every run in order; None as soon as one cannot be. `until`: stop after that stage;
    `begun`: stages that are done already."""
    check_plan(plan, tools)
    outputs: dict[str, Output] = dict(begun.outputs) if begun else {}
    done: list[tuple[StageTask, Action]] = []
    components = begun.components if begun else ()
    for spec in plan.stages:
        if spec.name in outputs:
            continue
        names = components if spec.per_component and components else ("",)
        made: dict[str, Action] = {}
        for name in names:
            task = _task(engine, tools, plan, spec, name, outputs)
            action = resolve(task)
            if action is None:
                return None
            made[name] = action
            done.append((task, action))
        outputs[spec.name] = Output(made)
        if spec.name == EXPORT:
            components = _components(made[""])
        if spec.name == until:
            break
    origin = begun.origin if begun else None
    return StageResults(engine, tools, plan, tuple(done), outputs, components, origin)


def _task(
    engine: str,
    tools: Mapping[str, str],
    plan: BuildPlan,
    spec: StageSpec,
    component: str,
    outputs: Mapping[str, Output],
) -> StageTask:
    files = {name: outputs[name].seen_by(component) for name in spec.inputs if name != SOURCE}
    digests = {name: files_digest(entries) for name, entries in files.items()}
    if SOURCE in spec.inputs:
        digests[SOURCE] = str(plan.source["digest"])
    return StageTask(spec, component, key_parts(engine, tools, spec, component, digests), files)


def check_plan(plan: BuildPlan, tools: Mapping[str, str]) -> None:
    """Raise `BuildFailed` for a plan that breaks the contract of engines."""
    seen: set[str] = set()
    for spec in plan.stages:
        missing = [name for name in spec.inputs if name != SOURCE and name not in seen]
        unknown = [name for name in spec.tools if name not in tools]
        if missing or unknown or spec.name in seen or not COMPONENT.fullmatch(spec.name):
            what = f"inputs {missing}" if missing else f"tools {unknown}" if unknown else "its name"
            raise _engine_fault(f"stage {spec.name!r} cannot be planned because of {what}")
        seen.add(spec.name)
    if not seen - {INPUTS}:
        raise _engine_fault("no stage makes any files")
    if not re.fullmatch("[0-9a-f]{64}", str(plan.source.get("digest"))):
        raise _engine_fault("the source has no SHA-256")


def _components(export: Action) -> tuple[str, ...]:
    names = tuple(str(name) for name in export.facts.get("components", ()))
    paths = {file.path for file in export.files}
    for name in names:
        alone = within(export.files, name)
        if not COMPONENT.fullmatch(name) or not (alone or f"{name}.onnx" in paths):
            raise _engine_fault(f"component {name!r} has no folder and no file in the export")
    return names


def _engine_fault(text: str) -> BuildFailed:
    return BuildFailed(FailureClass.UNKNOWN, "plan", text, hint="this is a fault of the engine")
