"""The builder: a planned cell in, a package folder out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.digest import value_digest
from matrix.model import Cell, Model
from matrix.status import FailureClass
from workers.budget import DiskBudget
from workers.built import Built
from workers.engine import BuildPlan, Request
from workers.errors import BuildFailed, CorruptBlob
from workers.failures import KnownFailures
from workers.graph import EXPORT, INPUTS, StageTask, Walked, walk
from workers.host import codec
from workers.host.client import EngineHost
from workers.ladder.claim import Claim
from workers.memory_budget import MemoryBudget
from workers.package import Json, Maker, Sealed, assemble
from workers.pipeline import Runner, os_failure
from workers.record import Clock, build_record
from workers.request import request_for
from workers.scratch import Scratch, sweep_dead
from workers.stages import Observer, StageRun, Unobserved
from workers.store import Action, Store

__all__ = ["BuildOptions", "Builder", "Built"]

TRIES = 3
"""How often a build is begun anew because the store held wrong bytes."""
KEYS = "keys"
"""The kind of note that keeps a cell's last stage keys, for `explain`."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What a sweep decides for all its cells."""

    stamp: str = ""
    self_contained: bool = False
    remote_code: bool = False
    pickle: bool = False
    estimate: Callable[[Cell], int] | None = None
    """Bytes that a cell took when it was last built; 0: unknown."""
    memory: Callable[[Cell, str, str], int] | None = None
    """Bytes that a stage (of a component) of it took at its peak; 0: unknown."""


@dataclass(frozen=True, slots=True)
class Context:
    """Who watches one build, where it writes, and what stops it."""

    observer: Observer
    cancel: threading.Event | None = None
    log: Path | None = None


class Builder:
    """Builds cells, one after the other, in its own engine host; the store may be shared."""

    def __init__(
        self,
        store: Store,
        host: EngineHost,
        work_root: Path,
        options: BuildOptions | None = None,
        *,
        budget: DiskBudget | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.store = store
        self.host = host
        self.options = options or BuildOptions()
        self._budget = budget
        self._memory = memory
        sweep_dead(work_root)
        self._scratch = Scratch(work_root)
        self._plans: dict[str, BuildPlan] = {}
        self._known = KnownFailures()
        self._planned_model: Mapping[str, Any] = {}
        self._tools: dict[str, str] | None = None

    def begin_model(self) -> None:
        """What was learned of another model, or in another attempt, does not count here."""
        self._known.forget()

    def build(
        self,
        cell: Cell,
        *,
        observer: Observer | None = None,
        cancel: threading.Event | None = None,
        log: Path | None = None,
        attempt: int = 1,
    ) -> Built:
        """Build a cell. Raises `BuildFailed` or `Cancelled`; then nothing of it is left behind."""
        context = Context(observer or Unobserved(), cancel, log)
        return self._anew(cell.id, lambda: self._build(cell, context, attempt))

    def export_package(
        self,
        model: Model,
        cell: Cell,
        version: str,
        *,
        observer: Observer | None = None,
        cancel: threading.Event | None = None,
        log: Path | None = None,
    ) -> Built:
        """The export of a model, as `cell` wants it, as a package."""
        context = Context(observer or Unobserved(), cancel, log)
        return self._anew(cell.id, lambda: self._build_export(model, cell, version, context))

    def predict(self, cell: Cell, *, cancel: threading.Event | None = None) -> str | None:
        """The tree digest that `build` would arrive at, if every stage is in the store."""
        request = self._request(cell)
        plan = self._plan(request, Context(Unobserved(), cancel))
        walked = self._walk(plan, lambda task: self.store.lookup(task.key.key))
        if walked is None:
            return None
        return self._sealed(cell, plan, walked).tree

    def tools(self) -> dict[str, str]:
        """Versions of the engine's tools, asked once."""
        if self._tools is None:
            self._tools = self.host.tools()
        return self._tools

    def keys(self, cell: Cell) -> list[tuple[StageTask, Action | None]]:
        """Every stage run of a cell, as far as its key is known, with what the store has of it."""
        seen: list[tuple[StageTask, Action | None]] = []

        def resolve(task: StageTask) -> Action | None:
            action = self.store.lookup(task.key.key)
            seen.append((task, action))
            return action

        self._walk(self._plan(self._request(cell), Context(Unobserved())), resolve)
        return seen

    def close(self) -> None:
        """End the host and remove what was built and not moved away."""
        self.host.close()
        self._scratch.close()

    def _anew(self, cell_id: str, build: Callable[[], Built]) -> Built:
        """Build; bytes of the store that turn out wrong are made again from their inputs."""
        try:
            with self.store.in_use():
                for _try in range(TRIES):
                    try:
                        return build()
                    except CorruptBlob as error:
                        found = error
        except OSError as error:
            raise os_failure("store", error) from error
        raise BuildFailed(
            FailureClass.DISK,
            "store",
            f"{found.message}, {TRIES} times in a row, for {cell_id}",
            hint="is the disk of the store failing?",
        ) from found

    def _build(self, cell: Cell, context: Context, attempt: int) -> Built:
        clock = Clock()
        request = self._request(cell)
        plan = self._plan(request, context)
        walked, runs = self._run(cell, request, plan, context)
        sealed = self._sealed(cell, plan, walked)
        record = build_record(
            self.options.stamp, cell.version, self.tools(), clock, walked, runs, attempt
        )
        self._note_keys(cell.id, walked)
        return self._package(
            cell.id,
            sealed,
            record,
            stages=tuple(runs),
            clock=clock,
            export_tree=sealed.manifest["export"]["tree"],
            inputs=walked.outputs[INPUTS].files if INPUTS in walked.outputs else (),
            export=walked.outputs[EXPORT].files if EXPORT in walked.outputs else (),
            claim=Claim.of(cell),
        )

    def _build_export(self, model: Model, cell: Cell, version: str, context: Context) -> Built:
        clock = Clock()
        request = self._request(cell)
        plan = self._plan(request, context)
        walked, runs = self._run(cell, request, plan, context, until=EXPORT)
        sealed = self._maker().export(model, plan, walked)
        record = build_record(self.options.stamp, version, self.tools(), clock, walked, runs, 1)
        return self._package(
            f"{model.name}@{EXPORT}",
            sealed,
            record,
            stages=tuple(runs),
            clock=clock,
            export_tree=sealed.tree,
        )

    def _package(
        self,
        name: str,
        sealed: Sealed,
        record: Json,
        *,
        stages: tuple[StageRun, ...],
        clock: Clock,
        **more: Any,
    ) -> Built:
        """Put the folder together; a failure leaves none."""
        folder = self._scratch.new_folder("package")
        try:
            placed = assemble(self.store, folder, sealed, record)
        except BaseException:
            self._scratch.drop(folder)
            raise
        return Built(
            cell_id=name,
            folder=folder,
            files=tuple(placed),
            tree=sealed.tree,
            manifest=sealed.manifest,
            build_record=record,
            stages=stages,
            seconds=clock.seconds,
            store=self.store,
            **more,
        )

    def _sealed(self, cell: Cell, plan: BuildPlan, walked: Walked) -> Sealed:
        return self._maker().cell(cell, plan, walked, self_contained=self.options.self_contained)

    def _maker(self) -> Maker:
        return Maker(self.host.spec.name, self.tools())

    def _run(
        self, cell: Cell, request: Request, plan: BuildPlan, context: Context, *, until: str = ""
    ) -> tuple[Walked, list[StageRun]]:
        """All stages, each from the store or run now."""

        def reserve() -> AbstractContextManager[object]:
            known = self.options.estimate(cell) if self.options.estimate else 0
            if self._budget is None:
                return nullcontext()
            return self._budget.reserve(known or plan.disk, context.cancel)

        def memory(task: StageTask) -> AbstractContextManager[object]:
            if self._memory is None:
                return nullcontext()
            ask = self.options.memory
            known = ask(cell, task.spec.name, task.component) if ask else 0
            return self._memory.reserve(known or plan.memory, context.cancel)

        runner = Runner(
            store=self.store,
            host=self.host,
            cell_id=cell.id,
            request=request,
            observer=context.observer,
            timeout=cell.timeout,
            log=context.log,
            cancel=context.cancel,
            reserve=reserve,
            memory=memory,
            known=self._known,
        )
        try:
            walked = self._walk(plan, runner.resolve, until=until)
        finally:
            runner.close()
        if walked is None:
            raise AssertionError("a runner resolves every stage or raises")
        return walked, runner.runs

    def _walk(
        self,
        plan: BuildPlan,
        resolve: Callable[[StageTask], Action | None],
        *,
        until: str = "",
    ) -> Walked | None:
        return walk(self.host.spec.name, self.tools(), plan, resolve, until=until)

    def _request(self, cell: Cell) -> Request:
        options = self.options
        return request_for(cell, remote_code=options.remote_code, pickle=options.pickle)

    def _plan(self, request: Request, context: Context) -> BuildPlan:
        """The engine's plan, asked for once per distinct request (of the model at hand)."""
        if request.model != self._planned_model:
            self._planned_model = request.model
            self._plans.clear()
        key = value_digest(codec.request_to_json(request))
        if key not in self._plans:
            plan = self.host.plan(request, log=context.log, cancel=context.cancel)
            self._plans[key] = plan
        return self._plans[key]

    def _note_keys(self, cell_id: str, walked: Walked) -> None:
        now = {
            f"{task.spec.name}:{task.component}": {"key": task.key.key, "parts": task.key.parts}
            for task, _action in walked.tasks
        }
        last = self.store.notes.read(KEYS, cell_id) or {}
        if last.get("now") != now:
            self.store.notes.write(KEYS, cell_id, {"now": now, "before": last.get("now")})
