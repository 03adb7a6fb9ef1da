"""The builder: a planned cell in, a package folder out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from matrix.digest import MANIFEST, RUN_RECORDS, value_digest
from matrix.model import Cell, Model
from matrix.status import FailureClass
from workers.build.built import Built
from workers.build.disk_budget import DiskBudget
from workers.build.expectation import Expectation, Unknown, disk_needed, memory_needed
from workers.build.graph import EXPORT, INPUTS, StageTask, Walked, walk
from workers.build.known_failures import KnownFailures
from workers.build.last_keys import note_keys
from workers.build.memory_budget import MemoryBudget
from workers.build.package import Json, Maker, Sealed, assemble
from workers.build.pipeline import Context, Runner, noted, os_failure
from workers.build.record import Clock, build_record
from workers.build.request import request_for
from workers.build.room import Crowded, Room
from workers.build.stages import Observer, StageRun, Unobserved
from workers.engine import BuildPlan, Request
from workers.errors import BuildFailed, CorruptBlob
from workers.host import codec
from workers.host.client import EngineHost
from workers.scratch import Scratch, sweep_dead
from workers.store import Action, Store
from workers.verify.ladder.claim import Claim

__all__ = ["BuildOptions", "Builder", "Built"]

WRITTEN = {MANIFEST, *RUN_RECORDS}
"""Of a package folder, what is written over when it is used again."""
PATIENCE = 8
"""Another build may have as many stages before it, each as long as a stage may take."""
TRIES = 3
"""How often a build is begun anew because the store held wrong bytes."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What a sweep decides for all its cells."""

    stamp: str = ""
    self_contained: bool = False
    remote_code: bool = False
    pickle: bool = False
    expected: Expectation = field(default_factory=Unknown)


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
        self.offline = False
        """Whether models of the Hub come from the local cache alone."""
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
        """Build a cell. Raises `BuildFailed` or `Cancelled`; then nothing of it is left behind.

        What it was made of stays in the store until the answer is let go.
        """
        context = self._context(cell, observer, cancel, log)
        return self._anew(cell.id, context, lambda: self._build(cell, context, attempt))

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
        context = self._context(cell, observer, cancel, log)
        return self._anew(
            cell.id, context, lambda: self._build_export(model, cell, version, context)
        )

    def predict(
        self, cell: Cell, *, export: bool = False, cancel: threading.Event | None = None
    ) -> str | None:
        """The tree digest that `build` would arrive at, if every stage is in the store.

        `export`: of the export that the cell is made of.
        """
        plan = self._plan(self._request(cell), self._context(cell, cancel=cancel))
        until = EXPORT if export else ""
        walked = self._walk(plan, lambda task: self.store.lookup(task.key.key), until=until)
        if walked is None:
            return None
        if export:
            return self._maker().export(cell.model, plan, walked).tree
        note_keys(self.store.notes, cell.id, walked)
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

        self._walk(self._plan(self._request(cell), self._context(cell)), resolve)
        return seen

    def close(self) -> None:
        """End the host and remove what was built and not moved away."""
        self.host.close()
        self._scratch.close()

    def _context(
        self,
        cell: Cell,
        observer: Observer | None = None,
        cancel: threading.Event | None = None,
        log: Path | None = None,
    ) -> Context:
        seen, limit = observer or Unobserved(), PATIENCE * cell.timeout
        room = Room(self._budget, cancel, limit, noted(seen, cell.id, log))
        return Context(seen, room, cancel, log, limit)

    def _anew(self, cell_id: str, context: Context, build: Callable[[], Built]) -> Built:
        """Build; begin again after waiting for room, or with bytes that turned out wrong."""
        bad: list[CorruptBlob] = []
        with closing(context.room) as room:
            while len(bad) < TRIES:
                try:
                    with ExitStack() as used:
                        used.enter_context(self.store.in_use())
                        return replace(build(), used=used.pop_all())
                except Crowded as crowded:
                    room.wait(crowded)
                except CorruptBlob as error:
                    bad.append(error)
                except OSError as error:
                    raise os_failure("store", error) from error
        raise BuildFailed(
            FailureClass.DISK,
            "store",
            f"{bad[-1].message}, {TRIES} times in a row, for {cell_id}",
            hint="is the disk of the store failing?",
        ) from bad[-1]

    def _build(self, cell: Cell, context: Context, attempt: int) -> Built:
        clock = Clock()
        request = self._request(cell)
        plan = self._plan(request, context)
        walked, runs = self._run(cell, request, plan, context)
        sealed = self._sealed(cell, plan, walked)
        record = build_record(
            self.options.stamp, cell.version, self.tools(), clock, walked, runs, attempt
        )
        note_keys(self.store.notes, cell.id, walked)
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
        folder = self._scratch.take("package")
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
            give_back=lambda: self._scratch.give_back(folder, keep=WRITTEN),
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
        past = self.options.expected

        def disk(task: StageTask) -> AbstractContextManager[object]:
            return context.room.reserve(disk_needed(past, cell, plan, task), plan.disk)

        def memory(task: StageTask) -> AbstractContextManager[object]:
            if self._memory is None:
                return nullcontext()
            return self._memory.reserve(memory_needed(past, cell, plan, task), context.cancel)

        runner = Runner(
            store=self.store,
            host=self.host,
            cell_id=cell.id,
            request=request,
            context=context,
            timeout=cell.timeout,
            disk=disk,
            memory=memory,
            known=self._known,
        )
        walked = self._walk(plan, runner.resolve, until=until)
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
        return request_for(
            cell,
            remote_code=options.remote_code,
            pickle=options.pickle,
            offline=self.offline,
        )

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
