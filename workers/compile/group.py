"""Compiling a group: members that fail are named and left out, the rest is compiled again."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from machine.files import copy_file, files_below
from matrix.model import Profile
from matrix.status import FailureClass
from workers.errors import BuildFailed
from workers.host.watch import UNWATCHED, Watching
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime

STAGE = "compile"
_AT = re.compile(r"compiling (\d+)/")
_LOST = {FailureClass.CRASH, FailureClass.TIMEOUT, FailureClass.MEMORY}
"""What a compiler does to its process: the member at hand has failed, the others have not."""


@dataclass(frozen=True, slots=True)
class Member:
    """One model of a group."""

    name: str
    """As people know it."""
    model: Path
    output: str
    """The name of its context model."""
    weights: Collection[str] = ()
    """The files with its weights, in the folder of the model."""

    @property
    def files(self) -> tuple[str, ...]:
        """Everything that is compiled, by the names in that folder."""
        return (self.model.name, *self.weights)


@dataclass(frozen=True, slots=True)
class Job:
    """How a group is compiled."""

    runtime: Runtime
    profile: Profile
    folder: Path
    """A private folder, empty; what is compiled ends up in its `out`."""
    watching: Watching = UNWATCHED
    """Of one member."""


@dataclass(slots=True)
class GroupResult:
    """The result of compiling a group."""

    folder: Path
    """Has the context models and binaries, and nothing else."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By name, of the members that were compiled."""
    contexts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: the answer of `read_contexts`; without nodes, the EP takes nothing of a member."""
    failures: dict[str, BuildFailed] = field(default_factory=dict)
    peak_memory: int = 0
    """Of the compiler's process."""


def compile_group(runtimes: Runtimes, members: Sequence[Member], job: Job) -> GroupResult:
    """Compile all members into one context, without those that fail. Raises only `Cancelled`
    and what has nothing to do with a member."""
    failures: dict[str, BuildFailed] = {}
    left = list(members)
    while left:
        folder = job.folder / f"try-{len(failures)}"
        result = compile_once(runtimes, left, replace(job, folder=folder))
        failures |= result.failures
        if result.seconds:
            result.failures = failures
            return result
        left = [member for member in left if member.name not in failures]
    return GroupResult(job.folder / "out", failures=failures)


def compile_once(runtimes: Runtimes, members: Sequence[Member], job: Job) -> GroupResult:
    """Compile all members into one context, or name one that failed: then there is no `seconds`
    and nothing in the folder may be used."""
    result = GroupResult(job.folder / "out")
    result.folder.mkdir(parents=True)
    failed = _compile(runtimes, members, job, result)
    if failed is None:
        _read(runtimes, members, result, job)
    else:
        member, error = failed
        result.failures[member.name] = error
    return result


def binaries_of(result: GroupResult) -> list[str]:
    return list(dict.fromkeys(name for one in result.contexts.values() for name in one["binaries"]))


def compare_sizes(
    runtimes: Runtimes, members: Sequence[Member], result: GroupResult, job: Job
) -> dict[str, Any]:
    """Bytes of the context models with their binaries: in one context, and each in its own."""
    apart: int | None = 0
    for place, member in enumerate(members if len(members) > 1 else ()):
        alone = compile_once(runtimes, [member], replace(job, folder=job.folder / f"apart-{place}"))
        apart = None if alone.failures or apart is None else apart + _size(alone, [member])
    together = _size(result, members)
    return {
        "graphs": len(members),
        "together": together,
        "apart": apart if len(members) > 1 else together,
    }


def _size(result: GroupResult, members: Sequence[Member]) -> int:
    names = [*binaries_of(result), *(one.output for one in members)]
    return sum((result.folder / name).stat().st_size for name in names)


def _compile(
    runtimes: Runtimes, members: Sequence[Member], job: Job, result: GroupResult
) -> tuple[Member, BuildFailed] | None:
    """The member that failed, with its error."""
    sources = []
    for place, member in enumerate(members):
        for name in member.files:
            copy_file(member.model.parent / name, job.folder / f"in-{place}" / name)
        sources.append(f"in-{place}/{member.model.name}")
    at, watching = 0, job.watching

    def progress(text: str) -> None:
        nonlocal at
        if found := _AT.match(text):
            at = int(found[1]) - 1
            watching.progress(f"{text} {members[at].name}")

    args = {
        "folder": str(job.folder.absolute()),
        "sources": sources,
        "outputs": [f"out/{member.output}" for member in members],
        "backend": job.profile.backend,
        "embed": job.profile.embed,
    }
    try:
        limit = watching.timeout and watching.timeout * len(members)
        limited = replace(watching, timeout=limit, progress=progress)
        answer = runtimes.compile(job.runtime, args, limited)
    except BuildFailed as error:
        if error.failure not in _LOST:
            raise
        return members[at], error
    if "error" in answer:
        failure = BuildFailed(FailureClass.COMPILE, STAGE, str(answer["error"]), hint=_HINT)
        return members[int(answer["failed"])], failure
    result.peak_memory = int(answer["peak_memory"])
    result.seconds = dict(zip((one.name for one in members), answer["seconds"], strict=True))
    return None


_HINT = "does the device of this profile take the precision and operators of the model?"


def _read(runtimes: Runtimes, members: Sequence[Member], result: GroupResult, job: Job) -> None:
    there = [one.output for one in members if (result.folder / one.output).is_file()]
    contexts = references(runtimes, result.folder, there, job.watching)
    for member in members:
        found = contexts.get(member.output, {"nodes": [], "binaries": [], "problems": []})
        result.contexts[member.name] = found
        if found["problems"]:
            text = f"the compiler wrote a context model that cannot be used: {found['problems'][0]}"
            result.failures[member.name] = BuildFailed(FailureClass.COMPILE, STAGE, text)


def model_in(folder: Path) -> Path:
    """The only model below a folder."""
    found = [path for path in files_below(folder) if path.suffix == ".onnx"]
    if len(found) != 1:
        text = f"there are {len(found)} models to compile instead of one"
        raise BuildFailed(FailureClass.UNKNOWN, STAGE, text, hint="a fault of the engine")
    return found[0]


def references(
    runtimes: Runtimes, folder: Path, models: Sequence[str], watching: Watching = UNWATCHED
) -> Mapping[str, dict[str, Any]]:
    """What models refer to, by their names in a folder: see `workers.verify.checker`."""
    args = {"folder": str(folder.absolute()), "models": list(models)}
    told: Mapping[str, dict[str, Any]] = runtimes.checker.call(
        "contexts", args, watching, stage=STAGE
    ).result
    return told
