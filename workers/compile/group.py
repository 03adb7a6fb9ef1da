"""Compiling the graphs of one context, or naming the one that cannot be compiled."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from machine.files import copy_file
from matrix.model import Profile
from matrix.status import FailureClass
from workers.errors import BuildFailed
from workers.host.watch import UNWATCHED, Watching
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime

STAGE = "compile"
TOKEN = 16
"""Characters of a key in the names of what is made with it."""
_AT = re.compile(r"compiling (\d+)/")
_LOST = {FailureClass.CRASH, FailureClass.TIMEOUT, FailureClass.MEMORY}
"""What a compiler does to its process: the graph at hand has failed, the others have not."""
_HINT = "does the device of this profile take the precision and operators of the model?"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph of a context."""

    name: str
    """Of the component, the member or the file; empty for a model that is one graph."""
    member: str
    """The input that it comes from."""
    model: Path
    """Its portable model, with its weights below the same folder."""
    weights: Collection[str] = ()
    """The files with its weights, in the folder of the model."""
    origin: str = ""
    """Where its portable model is, in the portable package or below the folder of the member."""

    @property
    def label(self) -> str:
        """Its name for files and messages."""
        return self.name or self.model.stem

    @property
    def files(self) -> tuple[str, ...]:
        """Everything that is compiled, by the names in the folder of the model."""
        return (self.model.name, *self.weights)


@dataclass(frozen=True, slots=True)
class Job:
    """How graphs are compiled."""

    runtimes: Runtimes
    runtime: Runtime
    profile: Profile
    folder: Path
    """A private folder."""
    watching: Watching = UNWATCHED
    """Of one graph."""


@dataclass(frozen=True, slots=True)
class Context:
    """A context model."""

    graph: Graph
    file: Path
    nodes: Sequence[Mapping[str, Any]]
    binaries: tuple[str, ...]
    """The files beside it that it names; several context models may share one."""
    compatibility: Mapping[str, str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Group:
    """The context models of graphs that were compiled together."""

    contexts: tuple[Context, ...]
    peak_memory: int
    """Of the compiler's process."""

    @property
    def folder(self) -> Path:
        """Has the context models and binaries."""
        return self.contexts[0].file.parent

    @property
    def binaries(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in self.contexts for name in one.binaries))

    @property
    def sharing(self) -> dict[str, int]:
        """How many graphs there are, and the bytes of their models and binaries."""
        names = [*self.binaries, *(one.file.name for one in self.contexts)]
        size = sum((self.folder / name).stat().st_size for name in names)
        return {"graphs": len(self.contexts), "together": size}


def compile_group(graphs: Sequence[Graph], key: str, job: Job) -> Group:
    """Compile graphs into one context. Raises `BuildFailed`, with `member` where one is at fault:
    then nothing of the group may be used."""
    folder = Path(tempfile.mkdtemp(dir=job.folder))
    made = folder / "out"
    made.mkdir()
    outputs = [f"{graph.label}_{key[:TOKEN]}.onnx" for graph in graphs]
    answer = _compiled(graphs, outputs, folder, job)
    there = [name for name in outputs if (made / name).is_file()]
    told = references(job.runtimes, made, there, job.watching)
    contexts = []
    for graph, name, seconds in zip(graphs, outputs, answer["seconds"], strict=True):
        found = told.get(name, {"nodes": [], "problems": []})
        if found["problems"]:
            text = f"the compiler wrote a context model that cannot be used: {found['problems'][0]}"
            raise _fault(graph, BuildFailed(FailureClass.COMPILE, STAGE, text))
        if not found["nodes"]:
            text = f"{job.runtime.provider} takes no operator of {graph.label}: nothing to compile"
            hint = "leave it out of its context group or profile, or choose another precision"
            raise _fault(graph, BuildFailed(FailureClass.UNSUPPORTED, STAGE, text, hint=hint))
        binaries, compatibility = tuple(found["binaries"]), found["compatibility"]
        contexts.append(
            Context(graph, made / name, found["nodes"], binaries, compatibility, seconds)
        )
    return Group(tuple(contexts), int(answer["peak_memory"]))


def leaving_out(
    members: Mapping[str, T], attempt: Callable[[Mapping[str, T]], R]
) -> tuple[R | None, dict[str, BuildFailed]]:
    """What an attempt makes of all members but those that it fails with, and their failures.

    A binary is complete only after the last of its graphs, so the rest is tried from the start."""
    left, failures = dict(members), dict[str, BuildFailed]()
    while left:
        try:
            return attempt(left), failures
        except BuildFailed as error:
            if error.member not in left:
                raise
            failures[error.member] = error
            del left[error.member]
    return None, failures


def references(
    runtimes: Runtimes, folder: Path, models: Sequence[str], watching: Watching = UNWATCHED
) -> Mapping[str, dict[str, Any]]:
    """What models refer to, by their names in a folder: see `workers.verify.checker`."""
    args = {"folder": str(folder.absolute()), "models": list(models)}
    told: Mapping[str, dict[str, Any]] = runtimes.checker.call(
        "contexts", args, watching, stage=STAGE
    ).result
    return told


def output_stems(stems: Sequence[str]) -> list[str]:
    """A stem for each model, `model` or `model_1`; the first to ask for a name gets it.

    They differ on every disk, upper and lower case alike. A name that a model has by itself is not
    given to another one: of model, model and model_1 the second becomes model_2.
    """
    own = {stem.casefold() for stem in stems}
    taken: set[str] = set()
    found = []
    for stem in stems:
        name, number = stem, 0
        while name.casefold() in taken or (number and name.casefold() in own):
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.casefold())
        found.append(name)
    return found


def _compiled(
    graphs: Sequence[Graph], outputs: Sequence[str], folder: Path, job: Job
) -> Mapping[str, Any]:
    """The compiler's answer about `outputs`, which it writes into `out`."""
    sources = []
    for place, graph in enumerate(graphs):
        for name in graph.files:
            copy_file(graph.model.parent / name, folder / f"in-{place}" / name)
        sources.append(f"in-{place}/{graph.model.name}")
    at, watching = 0, job.watching

    def progress(text: str) -> None:
        nonlocal at
        if found := _AT.match(text):
            at = int(found[1]) - 1
            watching.progress(f"{text} {graphs[at].label}")

    args = {
        "folder": str(folder.absolute()),
        "sources": sources,
        "outputs": [f"out/{name}" for name in outputs],
        "backend": job.profile.backend,
        "embed": job.profile.embed,
    }
    try:
        limit = watching.timeout and watching.timeout * len(graphs)
        limited = replace(watching, timeout=limit, progress=progress)
        answer = job.runtimes.compile(job.runtime, args, limited)
    except BuildFailed as error:
        if error.failure in _LOST:
            _fault(graphs[at], error)
        raise
    if "error" in answer:
        failure = BuildFailed(FailureClass.COMPILE, STAGE, str(answer["error"]), hint=_HINT)
        raise _fault(graphs[int(answer["failed"])], failure)
    return answer


def _fault(graph: Graph, error: BuildFailed) -> BuildFailed:
    error.member = graph.member
    return error
