"""The stage `compile`: one graph alone, or all graphs of a cell in one context.

The inputs of a shared context are portable packages: one composite, whose components are the
graphs, or one package for each member of a context group. A context model names its binary by a
path that stays in its folder, so all of them lie beside the one binary: `encoder.onnx`,
`decoder.onnx`. The composition names these files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from machine.files import copy_file, files_below
from matrix.status import FailureClass
from workers import composition
from workers.compile import group
from workers.compile.files import output_stems
from workers.composition import Component, Composition
from workers.engine import StageReport
from workers.errors import BuildFailed
from workers.runtimes.pool import Runtimes

ALONE = "portable.model"
"""The input of a cell that shares the context with no other; names of members have no dot."""
_MODEL = "model"
"""What a graph without a name is called."""
_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph of the context."""

    name: str
    """Of the component or the member; empty for a model that is one graph."""
    member: str
    """The input that it comes from."""
    model: Path
    """Its portable model, with its weights below the same folder."""
    origin: str
    """Where its portable model is, in the portable package or below the folder of the member."""

    @property
    def label(self) -> str:
        """Its name for files and messages."""
        return self.name or _MODEL

    @property
    def file(self) -> str:
        """Its context model."""
        return f"{self.label}.onnx"


def member_names(models: Sequence[str]) -> list[str]:
    """A name for each member of a group, from the ids of their models; unique on every disk."""
    ends = [re.sub(r"[^A-Za-z0-9_-]+", "-", one.rpartition("/")[2]).strip("-_") for one in models]
    return output_stems([end or _MODEL for end in ends])


def graphs_of(inputs: Mapping[str, Path]) -> list[Graph]:
    """The graphs of the portable packages, in order."""
    if list(inputs) == [ALONE]:
        folder = inputs[ALONE]
        record = composition.read(folder)
        if record is None:
            model = group.model_in(folder)
            return [Graph("", ALONE, model, model.relative_to(folder).as_posix())]
        return [Graph(one.name, ALONE, folder / one.model, one.model) for one in record.components]
    return [_member_graph(name, folder) for name, folder in inputs.items()]


def _member_graph(name: str, folder: Path) -> Graph:
    if composition.read(folder) is not None:
        failure = BuildFailed(
            FailureClass.UNSUPPORTED,
            group.STAGE,
            f"{name} has components, and the members of a context group are single graphs",
            hint="give it a context_group of its own: then its components share a context",
        )
        failure.member = name
        raise failure
    model = group.model_in(folder)
    return Graph(name, name, model, f"{name}/{model.relative_to(folder).as_posix()}")


def compile_shared(
    runtimes: Runtimes, inputs: Mapping[str, Path], out: Path, key: str, job: group.Job
) -> StageReport:
    """Compile all graphs into one context in `out`. Raises `BuildFailed` with the member at fault:
    what is left of a group with a failing member has another key, and is another run."""
    graphs = graphs_of(inputs)
    members = [_member(runtimes, one, key) for one in graphs]
    result = _compiled(runtimes, graphs, members, job)
    for graph, member in zip(graphs, members, strict=True):
        copy_file(result.folder / member.output, out / graph.file)
    for binary in group.binaries_of(result):
        copy_file(result.folder / binary, out / binary)
    _copy_rest(inputs, members, out)
    if record := _composition(inputs, graphs):
        composition.write(record, out)
    return StageReport(
        facts={
            "graphs": [
                {
                    "name": one.name,
                    "model": one.file,
                    "origin": one.origin,
                    "contexts": result.contexts[one.label]["nodes"],
                    "binaries": result.contexts[one.label]["binaries"],
                }
                for one in graphs
            ],
            "binaries": group.binaries_of(result),
            "compatibility": result.contexts[graphs[0].label]["compatibility"],
        },
        info={
            **_costs([result], job),
            "sharing": group.compare_sizes(runtimes, members, result, job),
        },
    )


def compile_alone(
    runtimes: Runtimes, inputs: Mapping[str, Path], out: Path, key: str, job: group.Job
) -> StageReport:
    """Compile each graph of a package by itself; its context model lies where the portable one did.

    There is one, or several whose weights are one file."""
    (folder,) = inputs.values()
    if record := composition.read(folder):
        graphs = graphs_of({ALONE: folder})
        composition.write(record, out)
    else:
        model = group.model_in(folder)
        graphs = [Graph(model.stem, "", model, model.relative_to(folder).as_posix())]
    members = [_member(runtimes, one, key) for one in graphs]
    _copy_rest({ALONE: folder}, members, out)
    facts: dict[str, Any] = {"contexts": [], "binaries": []}
    results = []
    for graph, member in zip(graphs, members, strict=True):
        alone = replace(job, folder=job.folder / graph.label)
        result = _compiled(runtimes, [graph], [member], alone)
        context = result.contexts[graph.label]
        copy_file(result.folder / member.output, out / graph.origin)
        for name in context["binaries"]:
            copy_file(result.folder / name, (out / graph.origin).parent / name)
        facts["contexts"] += context["nodes"]
        facts["binaries"] += context["binaries"]
        facts["compatibility"] = context["compatibility"]
        results.append(result)
    return StageReport(facts=facts, info=_costs(results, job))


def _costs(results: Sequence[group.GroupResult], job: group.Job) -> dict[str, Any]:
    return {
        "seconds": round(sum(sum(one.seconds.values()) for one in results), 3),
        "peak_memory": max(one.peak_memory for one in results),
        "runtime": job.runtime.to_json(),
    }


def _member(runtimes: Runtimes, graph: Graph, key: str) -> group.Member:
    told = group.references(runtimes, graph.model.parent, [graph.model.name])
    weights = told[graph.model.name]["external"]
    return group.Member(graph.label, graph.model, f"{graph.label}_{key[:_TOKEN]}.onnx", weights)


def _compiled(
    runtimes: Runtimes, graphs: Sequence[Graph], members: Sequence[group.Member], job: group.Job
) -> group.GroupResult:
    """Compile graphs together. Raises for the first one that has no context."""
    result = group.compile_once(runtimes, members, replace(job, folder=job.folder / "together"))
    for graph in graphs:
        failure = result.failures.get(graph.label)
        if failure is None and result.seconds and not result.contexts[graph.label]["nodes"]:
            failure = BuildFailed(
                FailureClass.UNSUPPORTED,
                group.STAGE,
                f"{job.runtime.provider} takes no operator of {graph.label}: nothing to compile",
                hint="leave it out of its context group or profile, or choose another precision",
            )
        if failure is not None:
            failure.member = graph.member
            raise failure
    return result


def _copy_rest(inputs: Mapping[str, Path], members: Sequence[group.Member], out: Path) -> None:
    """The files that go along with the models: those of a member below its name."""
    compiled = {one.model.parent / name for one in members for name in one.files}
    for name, folder in inputs.items():
        below = out if name == ALONE else out / name
        for path in files_below(folder):
            if path not in compiled and path != folder / composition.FILE:
                copy_file(path, below / path.relative_to(folder))


def _composition(inputs: Mapping[str, Path], graphs: Sequence[Graph]) -> Composition | None:
    components = tuple(Component(one.name, one.file) for one in graphs)
    if ALONE not in inputs:
        return Composition(components)
    record = composition.read(inputs[ALONE])
    return record and replace(record, components=components)
