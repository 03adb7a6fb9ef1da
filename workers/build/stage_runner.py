"""Runs the stages of one build: look up, lock, look up again, run, store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from machine.disk import free, is_full, reason, says_full
from machine.waits import WaitRules
from matrix.model import Cell
from matrix.status import FailureClass
from workers.build.budgets import BuildSpace, MemoryBudget
from workers.build.built import StageRun, doing
from workers.build.context import placed, within_group
from workers.build.graph import EXPORT, StageTask
from workers.compile.group import STAGE as COMPILE
from workers.compile.stage import ALONE, CompileStage
from workers.engine import SOURCE, BuildPlan, Request, StageJob
from workers.errors import BuildFailed, KnownFailures, failure_of
from workers.host.client import EngineHost
from workers.host.watch import Watching
from workers.store import Action, Store
from workers.store.blobs import NotAFile
from workers.store.cache import Cache

MAKE_ROOM = "free some space or set --disk-budget"
LEAST_FREE = 4 * 1024 * 1024
"""A stage that fails with less space than this most likely fails because of it."""


class Expectation(Protocol):
    """What is known of a stage from earlier builds, in bytes; 0 means unknown."""

    def disk_of(self, cell: Cell, stage: str, component: str) -> int:
        """What it made when it last ran."""

    def memory_of(self, cell: Cell, stage: str, component: str) -> int:
        """What it took at its peak."""


def os_failure(stage: str, error: OSError) -> BuildFailed:
    """The failure of one cell that an error of the file system means."""
    where = f" ({error.filename})" if error.filename else ""
    if is_full(error):
        return BuildFailed(FailureClass.DISK, stage, f"the disk is full{where}", hint=MAKE_ROOM)
    if isinstance(error, NotAFile):
        return BuildFailed(failure_of(stage), stage, str(error), hint="a fault of the engine")
    text = f"{reason(error)}{where}"
    return BuildFailed(FailureClass.DISK, stage, text, hint="can the store be read and written?")


@dataclass(frozen=True, slots=True)
class Member:
    """What a stage is run for: a cell or, of a shared context, every member and then the whole."""

    cell: Cell
    request: Request
    plan: BuildPlan
    """Its estimates hold."""
    name: str = ALONE


@dataclass(slots=True)
class LookUp:
    """Resolves stages with what the store has of them."""

    store: Store
    seen: list[tuple[StageTask, Action | None]] = field(default_factory=list)

    def resolve(self, of: Member, task: StageTask) -> Action | None:
        """What a stage made before; None: the store lacks some of it."""
        action = self.store.lookup(task.key)
        self.seen.append((placed(task, of.name), action))
        return action


@dataclass(slots=True)
class StageRunner:
    """Resolves the stages of one build, however often it begins again."""

    store: Store
    host: EngineHost
    space: BuildSpace
    memory: MemoryBudget | None
    expected: Expectation | None
    known: KnownFailures
    watching: Watching
    """Of a stage."""
    rules: WaitRules
    """Of waiting for other builds; what cancels a stage cancels a wait too."""
    compiler: CompileStage | None = None
    """Runs the stage that compiles; None: this build compiles nothing."""
    cache: Cache | None = None
    """What other machines made; None: this one builds for itself."""
    runs: list[StageRun] = field(default_factory=list)
    """The stages of this try."""
    _made: dict[str, StageRun] = field(default_factory=dict)
    """What earlier tries of this build ran, by key: a later one finds it in the store."""

    def resolve(self, of: Member, task: StageTask) -> Action:
        """The outputs of a stage, from the store or made now."""
        key, began = task.key, time.monotonic()
        action, ran = self.store.lookup(key), False
        if action is None:
            self.known.check(key)
            with self._disk(of, task), self.store.lock(key, self.rules):
                action = self.store.lookup(key) or self._taken(key)
                if action is None:
                    action, ran = self._run(of, task), True
        if self.cache is not None:
            self.cache.give(action, self.rules)
        self._note(of, task, action, ran, time.monotonic() - began)
        return action

    def _taken(self, key: str) -> Action | None:
        return self.cache.take(key, self.rules) if self.cache is not None else None

    def _disk(self, of: Member, task: StageTask) -> AbstractContextManager[None]:
        """At most copied inputs, scratch files and outputs are on the disk at once."""
        stage = (of.cell, task.spec.name, task.component)
        made = self.expected.disk_of(*stage) if self.expected else 0
        inputs = sum(file.size for files in task.inputs.values() for file in files)
        return self.space.reserve(2 * made + inputs if made else of.plan.disk, of.plan.disk)

    def _memory(self, of: Member, task: StageTask) -> AbstractContextManager[None]:
        if self.memory is None:
            return nullcontext()
        stage = (of.cell, task.spec.name, task.component)
        peak = self.expected.memory_of(*stage) if self.expected else 0
        what = f"{of.cell.id} {task.spec.name}"
        return self.memory.reserve(peak or of.plan.memory, self.rules, what=what)

    def _note(self, of: Member, task: StageTask, action: Action, ran: bool, seconds: float) -> None:
        run = StageRun(
            stage=task.spec.name,
            component=within_group(of.name, task.component),
            key=task.key,
            parts=task.parts,
            reused=not ran,
            seconds=seconds,
            bytes=action.size,
            peak_memory=action.peak_memory,
        )
        if ran:
            self._made[run.key] = run
        self.runs.append(self._made.get(run.key, run))

    def _run(self, of: Member, task: StageTask) -> Action:
        """Run a stage in working folders of its own: compiling in the process of a runtime, all
        else in the engine's."""
        borrow = self.store.scratch.borrow
        self.watching.progress(doing(task.spec.name, task.component))
        with self._failures_of(of, task), ExitStack() as folders:
            out = folders.enter_context(borrow(task.spec.name))
            inputs = {}
            for name, files in task.inputs.items():
                inputs[name] = folders.enter_context(borrow(f"in-{name}"))
                self.store.materialize(files, inputs[name], alone=True)
            source = of.request.model["source"]
            if SOURCE in task.spec.inputs and source["kind"] == "folder":
                inputs[SOURCE] = Path(source["ref"])
            job = StageJob(
                stage=task.spec.name,
                params=task.spec.params,
                request=of.request,
                inputs=inputs,
                out=out,
                component=task.component,
            )
            with self._memory(of, task):
                if self.compiler is not None and task.spec.name == COMPILE:
                    scratch = folders.enter_context(borrow("compiling"))
                    made = self.compiler.run(job, of.cell, task.key, scratch, self.watching)
                else:
                    made = self.host.run(job, self.watching)
            action = Action(
                key=task.key,
                parts=task.parts,
                files=(),
                facts=made.facts,
                info=made.info,
                seconds=float(made.info["seconds"]),
                peak_memory=int(made.info["peak_memory"]),
                subject=f"{of.request.model['id']} {task.spec.name} {task.component}".strip(),
            )
            return self.store.ingest(out, action)

    @contextmanager
    def _failures_of(self, of: Member, task: StageTask) -> Iterator[None]:
        """Classify what a stage raises, and remember it for the other cells of the model."""
        try:
            try:
                yield
            except OSError as error:
                raise os_failure(task.spec.name, error) from error
            except BuildFailed as error:
                if error.failure is FailureClass.DISK or not self._looks_full(error):
                    raise
                text = f"the disk is full ({error.reason})"
                raise error.told_as(text, FailureClass.DISK, MAKE_ROOM) from error
        except BuildFailed as error:
            # An export fails for the whole model, and is listed as a cell of its own.
            whole = f"{of.cell.model.name}@{EXPORT}"
            self.known.note(task.key, whole if task.spec.name == EXPORT else of.cell.id, error)
            raise

    def _looks_full(self, error: BuildFailed) -> bool:
        """Native code reports a full disk in its own words, or by crashing on it."""
        if error.failure in {FailureClass.TIMEOUT, FailureClass.MEMORY}:
            return False
        if says_full(f"{error.reason}\n{error.log_tail}"):
            return True
        return free(self.store.root) < LEAST_FREE
