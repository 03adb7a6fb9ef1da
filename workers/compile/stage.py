"""The stage `compile` of a compiled cell: portable packages become a package of context models.

Its inputs are the results of the last stage that makes the portable model: of one package or, for a
context group, of one for each member. The graphs of a package are compiled each by itself, and
their context models lie where the portable models did. Graphs that share a context lie beside its
one binary, because a context model names its binary by a path that stays in its folder:
`encoder.onnx`, `decoder.onnx`. The composition names these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from machine.files import copy_file, files_below
from matrix.model import Cell, Profile
from matrix.status import FailureClass
from workers import composition
from workers.compile.devices import parameters, runtime_for
from workers.compile.group import (
    STAGE,
    Graph,
    Group,
    Job,
    compile_group,
    output_stems,
    references,
)
from workers.composition import Component, Composition
from workers.engine import BuildPlan, Json, StageJob, StageReport, StageSpec
from workers.errors import BuildFailed
from workers.host.watch import Watching
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing, Runtime

ALONE = "portable.model"
"""The input of a cell that shares the context with no other; names of members have no dot."""
_INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class CompileStage:
    """Lays out and runs the stage for the cells of one slot."""

    runtimes: Runtimes
    emulated: bool
    """Whether an emulator of the device may compile."""
    base: Path
    """Where relative paths in options start."""

    def extend(self, plan: BuildPlan, cell: Cell) -> BuildPlan:
        """The plan of a compiled cell. Raises `BuildFailed` where this machine cannot compile."""
        if cell.profile is None:
            return plan
        last = portable_stage(plan)
        spec = self._spec(cell, {}, [last.name], per_component=last.per_component)
        return replace(plan, stages=(*plan.stages, spec))

    def shared(self, cell: Cell, members: Sequence[str]) -> StageSpec:
        """The stage that compiles these members of a cell into one context, in this order."""
        return self._spec(cell, {"members": list(members)}, members)

    def _spec(
        self, cell: Cell, params: Json, inputs: Sequence[str], *, per_component: bool = False
    ) -> StageSpec:
        made_with = parameters(*self._made_for(cell), self.base)
        return StageSpec(STAGE, {**made_with, **params}, inputs, (), per_component)

    def run(
        self, job: StageJob, cell: Cell, key: str, scratch: Path, watching: Watching
    ) -> StageReport:
        """Compile into `job.out`, with the files that go along with the models."""
        how = Job(self.runtimes, *self._made_for(cell), scratch, watching)
        if cell.shares_context:
            return compile_packages(job.inputs, job.out, key, how, shared=True)
        (folder,) = job.inputs.values()
        return compile_packages({ALONE: folder}, job.out, key, how, shared=False)

    def _made_for(self, cell: Cell) -> tuple[Runtime, Profile]:
        assert cell.profile is not None, "only compiled cells have a profile"
        found = runtime_for(self.runtimes, cell.profile, cell.target, emulated=self.emulated)
        if isinstance(found, Missing):
            text = f"profile {cell.profile.label} cannot be made here: {found.why}"
            failure = found.lost or FailureClass.UNSUPPORTED
            raise BuildFailed(failure, STAGE, text, hint=found.hint, retryable=bool(found.lost))
        return found, cell.profile


def portable_stage(plan: BuildPlan) -> StageSpec:
    """The stage that makes the portable model."""
    return [one for one in plan.stages if one.name not in {_INPUTS, STAGE}][-1]


def member_names(models: Sequence[str]) -> list[str]:
    """A name for each member of a group, from the ids of their models; unique on every disk."""
    ends = [re.sub(r"[^A-Za-z0-9_-]+", "-", one.rpartition("/")[2]).strip("-_") for one in models]
    return output_stems([end or "model" for end in ends])


def compile_packages(
    inputs: Mapping[str, Path], out: Path, key: str, job: Job, *, shared: bool
) -> StageReport:
    """Compile all graphs of portable packages into the package `out`, `shared`: into one context.
    Raises `BuildFailed` with the member at fault: what is left of a group without it has another
    key, and is another run."""
    graphs = list(_graphs(job.runtimes, inputs))
    groups = [
        compile_group(group, key, job)
        for group in ([graphs] if shared else [[one] for one in graphs])
    ]
    for group in groups:
        for one in group.contexts:
            place = out / (_file(one.graph) if shared else one.graph.origin)
            copy_file(one.file, place)
            for name in one.binaries:
                if not (place.parent / name).exists():
                    copy_file(group.folder / name, place.parent / name)
    _copy_rest(inputs, graphs, out)
    if record := _composition(inputs, graphs, shared=shared):
        composition.write(record, out)
    costs = {
        "seconds": round(sum(one.seconds for group in groups for one in group.contexts), 3),
        "peak_memory": max(group.peak_memory for group in groups),
        "runtime": job.runtime.to_json(),
    }
    if shared:
        return StageReport(_shared_facts(groups[0]), {**costs, "sharing": groups[0].sharing})
    contexts = [one for group in groups for one in group.contexts]
    facts = {
        "contexts": [node for one in contexts for node in one.nodes],
        "binaries": [name for one in contexts for name in one.binaries],
        "compatibility": contexts[-1].compatibility,
    }
    return StageReport(facts, costs)


def _shared_facts(group: Group) -> dict[str, Any]:
    return {
        "graphs": [
            {
                "name": one.graph.name,
                "model": _file(one.graph),
                "origin": one.graph.origin,
                "contexts": one.nodes,
                "binaries": list(one.binaries),
            }
            for one in group.contexts
        ],
        "binaries": list(group.binaries),
        "compatibility": group.contexts[0].compatibility,
    }


def _file(graph: Graph) -> str:
    """The context model of a graph that shares its context."""
    return f"{graph.label}.onnx"


def _graphs(runtimes: Runtimes, inputs: Mapping[str, Path]) -> Iterator[Graph]:
    """The graphs of the portable packages, in order."""
    for name, folder in inputs.items():
        record = composition.read(folder)
        if record is not None and name != ALONE:
            failure = BuildFailed(
                FailureClass.UNSUPPORTED,
                STAGE,
                f"{name} has components, and the members of a context group are single graphs",
                hint="give it a context_group of its own: then its components share a context",
            )
            failure.member = name
            raise failure
        files = [(one.name, one.model) for one in record.components] if record else [("", "")]
        for component, path in files:
            model = folder / path if path else _only_model(folder)
            weights = references(runtimes, model.parent, [model.name])[model.name]["external"]
            origin = model.relative_to(folder).as_posix()
            if name == ALONE:
                yield Graph(component, name, model, weights, origin)
            else:
                yield Graph(name, name, model, weights, f"{name}/{origin}")


def _only_model(folder: Path) -> Path:
    found = [path for path in files_below(folder) if path.suffix == ".onnx"]
    if len(found) != 1:
        text = f"there are {len(found)} models to compile instead of one"
        raise BuildFailed(FailureClass.UNKNOWN, STAGE, text, hint="a fault of the engine")
    return found[0]


def _copy_rest(inputs: Mapping[str, Path], graphs: Sequence[Graph], out: Path) -> None:
    """The files that go along with the models: those of a member below its name."""
    compiled = {one.model.parent / name for one in graphs for name in one.files}
    for name, folder in inputs.items():
        below = out if name == ALONE else out / name
        for path in files_below(folder):
            if path not in compiled and path != folder / composition.FILE:
                copy_file(path, below / path.relative_to(folder))


def _composition(
    inputs: Mapping[str, Path], graphs: Sequence[Graph], *, shared: bool
) -> Composition | None:
    components = tuple(Component(one.name, _file(one)) for one in graphs)
    if ALONE not in inputs:
        return Composition(components)
    record = composition.read(inputs[ALONE])
    return replace(record, components=components) if record and shared else record
