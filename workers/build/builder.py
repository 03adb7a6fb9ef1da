"""Builds the package folder of a planned cell or of its export."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from machine.folders import remove_tree
from machine.scratch import Scratch, sweep_dead
from matrix.digest import value_digest
from matrix.model import Cell
from matrix.status import FailureClass
from workers.build.built import Built
from workers.build.disk_budget import DiskBudget
from workers.build.expectation import Expectation, Unknown
from workers.build.graph import EXPORT, INPUTS, StageTask, Walked, walk
from workers.build.keys import note_keys
from workers.build.known_failures import KnownFailures
from workers.build.memory_budget import MemoryBudget
from workers.build.package import Maker, PackageContent, assemble
from workers.build.record import Clock, build_record
from workers.build.request import request_for
from workers.build.room import Crowded, Room
from workers.build.stage_runner import Report, StageRunner, os_failure, unreported, wait_report
from workers.compile.stage import CompileStage, portable_stage
from workers.engine import BuildPlan, Request
from workers.errors import BuildFailed, CorruptBlob
from workers.host import codec
from workers.host.client import EngineHost
from workers.store import Action, Store
from workers.verify.ladder.claim import Claim

__all__ = ["BuildOptions", "Builder", "Built"]

WAITS = 8
"""Another build may have this many stages before it, each as long as a stage may take."""
TRIES = 3
"""How often a build begins because the store held wrong bytes."""


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
        compiler: CompileStage | None = None,
    ) -> None:
        self.store = store
        self.host = host
        self.options = options or BuildOptions()
        self._budget = budget
        self._memory = memory
        self._compiler = compiler
        sweep_dead(work_root)
        self._scratch = Scratch(work_root)
        self._plans: dict[str, BuildPlan] = {}
        self._known = KnownFailures()
        self._planned_model: Mapping[str, Any] = {}
        self._tools: dict[str, str] | None = None

    def begin_model(self) -> None:
        """Forget the failures of the model or attempt before."""
        self._known.forget()

    def build(
        self,
        cell: Cell,
        *,
        export_version: str | None = None,
        offline: bool = False,
        report: Report = unreported,
        cancel: threading.Event | None = None,
        log: Path | None = None,
        attempt: int = 1,
    ) -> Built:
        """Build a cell. Raises `BuildFailed` or `Cancelled` and then leaves no files behind.

        `export_version`: build the package of the export that the cell is made from instead.
        The store keeps the inputs of the package until `Built.let_go`.
        """
        runner = self._runner(cell, offline, report, cancel, log)
        bad: list[CorruptBlob] = []
        with closing(runner.room) as room:
            while len(bad) < TRIES:
                try:
                    with ExitStack() as used:
                        used.enter_context(self.store.in_use())
                        built = self._build_once(runner, export_version, attempt)
                        return replace(built, used=used.pop_all())
                except Crowded as crowded:
                    room.wait(crowded)
                except CorruptBlob as error:
                    bad.append(error)
                except OSError as error:
                    raise os_failure("store", error) from error
        raise BuildFailed(
            FailureClass.DISK,
            "store",
            f"{bad[-1].message}, {TRIES} times in a row, for {cell.id}",
            hint="is the disk of the store failing?",
        ) from bad[-1]

    def predict(
        self,
        cell: Cell,
        *,
        export: bool = False,
        offline: bool = False,
        cancel: threading.Event | None = None,
    ) -> str | None:
        """The tree digest of the package that `build` would make; None unless the store has it all.

        `export`: of the export that the cell is made from.
        """
        plan = self._plan(self._request(cell, offline), cancel=cancel)
        if not export:
            plan = self._compiled(plan, cell)
        walked = self._walk(plan, lambda task: self.store.lookup(task.key.key), export=export)
        if walked is None:
            return None
        if not export:
            note_keys(self.store.notes, cell.id, walked.keys)
        return self._content(cell, plan, walked, export=export).tree

    def tools(self) -> dict[str, str]:
        """Versions of the engine's tools."""
        if self._tools is None:
            self._tools = self.host.tools()
        return self._tools

    def keys(self, cell: Cell) -> list[tuple[StageTask, Action | None]]:
        """Every stage run of a cell whose key is known, with its action if the store has one."""
        seen: list[tuple[StageTask, Action | None]] = []

        def resolve(task: StageTask) -> Action | None:
            action = self.store.lookup(task.key.key)
            seen.append((task, action))
            return action

        self._walk(self._compiled(self._plan(self._request(cell)), cell), resolve)
        return seen

    def close(self) -> None:
        """End the host and remove the packages that were not moved away."""
        self.host.close()
        self._scratch.close()

    def _runner(
        self,
        cell: Cell,
        offline: bool,
        report: Report,
        cancel: threading.Event | None,
        log: Path | None,
    ) -> StageRunner:
        limit = WAITS * cell.timeout
        return StageRunner(
            store=self.store,
            host=self.host,
            cell=cell,
            request=self._request(cell, offline),
            room=Room(self._budget, cancel, limit, wait_report(report, log)),
            memory=self._memory,
            expected=self.options.expected,
            known=self._known,
            report=report,
            cancel=cancel,
            log=log,
            limit=limit,
            compiler=self._compiler,
        )

    def _build_once(self, runner: StageRunner, export_version: str | None, attempt: int) -> Built:
        """Run the stages and put the package together; a failure leaves no folder behind."""
        cell, clock, export = runner.cell, Clock(), export_version is not None
        plan = self._plan(runner.request, runner.log, runner.cancel)
        if not export:
            plan = self._compiled(plan, cell)
        runner.begin(plan)
        walked = walk(
            self.host.spec.name,
            self.tools(),
            plan,
            runner.resolve,
            until=EXPORT if export else "",
        )
        if walked is None:
            raise AssertionError("a runner resolves every stage or raises")
        content = self._content(cell, plan, walked, export=export)
        record = build_record(
            self.options.stamp,
            export_version or cell.version,
            self.tools(),
            clock,
            walked,
            runner.runs,
            attempt,
        )
        if not export:
            note_keys(self.store.notes, cell.id, walked.keys)
        folder = self._scratch.new_folder("package")
        try:
            placed = assemble(self.store, folder, content, record)
        except BaseException:
            remove_tree(folder)
            raise
        return Built(
            cell_id=f"{cell.model.name}@{EXPORT}" if export else cell.id,
            folder=folder,
            files=tuple(placed),
            tree=content.tree,
            manifest=content.manifest,
            build_record=record,
            stages=tuple(runner.runs),
            seconds=clock.seconds,
            store=self.store,
            export_tree=content.tree if export else content.manifest["export"]["tree"],
            inputs=() if export else walked.files_of(INPUTS),
            export=() if export else walked.files_of(EXPORT),
            portable=walked.files_of(portable_stage(plan).name) if cell.profile else (),
            claim=None if export else Claim.of(cell),
        )

    def _content(
        self, cell: Cell, plan: BuildPlan, walked: Walked, *, export: bool
    ) -> PackageContent:
        maker = Maker(self.host.spec.name, self.tools())
        if export:
            return maker.export(cell.model, plan, walked)
        return maker.cell(cell, plan, walked, self_contained=self.options.self_contained)

    def _compiled(self, plan: BuildPlan, cell: Cell) -> BuildPlan:
        """With the stage that compiles, for a compiled cell."""
        return self._compiler.extend(plan, cell) if self._compiler else plan

    def _walk(
        self,
        plan: BuildPlan,
        resolve: Callable[[StageTask], Action | None],
        *,
        export: bool = False,
    ) -> Walked | None:
        until = EXPORT if export else ""
        return walk(self.host.spec.name, self.tools(), plan, resolve, until=until)

    def _request(self, cell: Cell, offline: bool = False) -> Request:
        options = self.options
        return request_for(
            cell,
            remote_code=options.remote_code,
            pickle=options.pickle,
            offline=offline,
        )

    def _plan(
        self, request: Request, log: Path | None = None, cancel: threading.Event | None = None
    ) -> BuildPlan:
        """The engine's plan, asked for once per distinct request of a model."""
        if request.model != self._planned_model:
            self._planned_model = request.model
            self._plans.clear()
        key = value_digest(codec.to_json(request))
        if key not in self._plans:
            plan = self.host.plan(request, log=log, cancel=cancel)
            self._plans[key] = plan
        return self._plans[key]
