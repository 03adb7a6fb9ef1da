"""Cells whose graphs share one context: the portable stages of each member, then one that compiles.

Pure, as `workers.build.graph` is. The results of a context group look like those of a composite
whose components are the members: the files of each lie below its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from matrix.digest import value_digest
from matrix.model import Cell
from matrix.status import FailureClass
from workers.build.graph import EXPORT, INPUTS, Output, StageResults, StageTask, key_parts
from workers.compile.group import STAGE, leaving_out
from workers.compile.stage import ALONE, member_names, portable_stage
from workers.engine import BuildPlan, StageSpec
from workers.errors import BuildFailed
from workers.store.actions import Action

PORTABLE = "portable"
"""The name under which the last stage of each member is kept."""

Portable = Callable[[str, Cell], StageResults | None]
"""The portable stages of a member, which is called so; None: the store lacks some."""


def members_of(cell: Cell) -> Mapping[str, Cell]:
    """The portable cells that a shared context is made of, by the names of the stage's inputs."""
    if not cell.members:
        return {ALONE: cell.portable}
    names = member_names([member.model.id for member in cell.members])
    return dict(zip(names, cell.members, strict=True))


def share(
    cell: Cell,
    portable: Portable,
    spec: Callable[[Sequence[str]], StageSpec],
    resolve: Callable[[StageTask], Action | None],
) -> StageResults | None:
    """Resolve the stages of all members and compile them together.

    A member of a group that fails is left out, and the rest is a context with a key of its own.
    Raises its failure if it is the last one, or no group has others to go on with.
    """
    cells = members_of(cell)
    failures: dict[str, BuildFailed] = {}
    made: dict[str, StageResults] = {}
    for name, member in cells.items():
        try:
            results = portable(name, member)
        except BuildFailed as error:
            if not cell.members or error.retryable or error.failure is FailureClass.AUTH:
                raise
            failures[name] = error
            continue
        if results is None:
            return None
        made[name] = results

    def compiled(left: Mapping[str, StageResults]) -> tuple[StageTask, Action | None]:
        task = _task(spec(list(left)), left)
        return task, resolve(task)

    found, without = leaving_out(made, compiled)
    failures |= without
    if found is None:
        raise next(iter(failures.values()))
    task, action = found
    if action is None:
        return None
    if not cell.members:
        return _composite(made[ALONE], task, action)
    left_out = {cells[name].id: error.reason for name, error in failures.items()}
    members = {name: (cells[name], one) for name, one in made.items() if name not in without}
    return _group(members, left_out, task, action)


def placed(task: StageTask, member: str) -> StageTask:
    """A run of a member as it is reported: with the component of the group."""
    return replace(task, component=within_group(member, task.component))


def within_group(member: str, component: str) -> str:
    """The name of a member's component in its group."""
    return component if member == ALONE else f"{member}/{component}".rstrip("/")


def _task(spec: StageSpec, made: Mapping[str, StageResults]) -> StageTask:
    inputs = {name: results.package for name, results in made.items()}
    digests = {name: results.package_digest for name, results in made.items()}
    first = next(iter(made.values()))
    return StageTask(spec, "", key_parts(first.engine, {}, spec, "", digests), inputs)


def _composite(results: StageResults, task: StageTask, action: Action) -> StageResults:
    return replace(
        results,
        plan=replace(results.plan, stages=(*results.plan.stages, task.spec)),
        tasks=(*results.tasks, (task, action)),
        outputs={**results.outputs, STAGE: Output({"": action})},
    )


def _group(
    members: Mapping[str, tuple[Cell, StageResults]],
    left_out: Mapping[str, str],
    task: StageTask,
    action: Action,
) -> StageResults:
    results = {name: one for name, (_cell, one) in members.items()}
    first = next(iter(results.values()))
    sources = {name: dict(one.plan.source) for name, one in results.items()}
    digest = value_digest({name: source["digest"] for name, source in sources.items()})
    outputs: dict[str, Output] = {}
    for stage in (INPUTS, EXPORT, PORTABLE):
        made = Output({name: one for name, of in results.items() for one in _made(of, stage)})
        if made.files:
            outputs[stage] = made
    return StageResults(
        engine=first.engine,
        tools=first.tools,
        plan=BuildPlan(
            source={"digest": digest, "members": sources},
            stages=(StageSpec(PORTABLE, {}, (), ()), task.spec),
            notices=tuple(
                dict.fromkeys(notice for one in results.values() for notice in one.plan.notices)
            ),
        ),
        tasks=(
            *((placed(run, name), of) for name, one in results.items() for run, of in one.tasks),
            (task, action),
        ),
        outputs={**outputs, STAGE: Output({"": action})},
        components=tuple(results),
        members=members,
        left_out=left_out,
    )


def _made(results: StageResults, stage: str) -> list[Action]:
    """What a stage of a member has made; a member is a single graph without components."""
    own = portable_stage(results.plan).name if stage == PORTABLE else stage
    made = results.outputs[own].by_component if own in results.outputs else {}
    return [made[""]] if "" in made else []
