"""Builds the package folder of a planned cell or of its export."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from machine.folders import remove_tree
from machine.scratch import Scratch, sweep_dead
from machine.waits import WaitRules, untold
from matrix.digest import value_digest
from matrix.model import Cell
from matrix.status import FailureClass
from workers.build.build_space import BuildSpace, NoSpaceNow
from workers.build.built import Built
from workers.build.context import placed, share, within_group
from workers.build.disk_budget import DiskBudget
from workers.build.graph import EXPORT, INPUTS, StageResults, StageTask, walk
from workers.build.keys import note_keys
from workers.build.known_failures import KnownFailures
from workers.build.memory_budget import MemoryBudget
from workers.build.origin import Begun, Fetch, begin, begun_with, stored
from workers.build.package import (
    PackageContent,
    assemble,
    build_record,
    cell_content,
    export_content,
)
from workers.build.request import request_for
from workers.build.stage_runner import Expectation, Report, StageRunner, os_failure, wait_report
from workers.build.stages import StageRun
from workers.compile.stage import CompileStage, portable_stage
from workers.engine import BuildPlan, Request, StageSpec
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
    expected: Expectation | None = None


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
        fetch: Fetch | None = None,
    ) -> None:
        self.store = store
        self.host = host
        self.options = options or BuildOptions()
        self._budget = budget
        self._memory = memory
        self._compiler = compiler
        self._fetch = fetch
        """Gets the packages that cells are compiled from; None: only what the store has."""
        sweep_dead(work_root)
        self._scratch = Scratch(work_root)
        self._plans: dict[str, BuildPlan] = {}
        self._known = KnownFailures()
        self._tools: dict[str, str] | None = None

    def begin_model(self) -> None:
        """Forget the failures and plans of the model or attempt before."""
        self._known = KnownFailures()
        self._plans.clear()

    def build(
        self,
        cell: Cell,
        *,
        export_version: str | None = None,
        offline: bool = False,
        report: Report = untold,
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
        with closing(runner.space) as space:
            while len(bad) < TRIES:
                try:
                    with ExitStack() as used:
                        used.enter_context(self.store.in_use())
                        built = self._build_once(runner, export_version, attempt, offline)
                        return replace(built, used=used.pop_all())
                except NoSpaceNow as lacking:
                    space.wait(lacking)
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
        cancel: threading.Event | None = None,
    ) -> str | None:
        """The tree digest of the package that `build` would make; None unless the store has it all.

        `export`: of the export that the cell is made from.
        """
        begun = self._stored(cell)
        if cell.origin is not None and begun is None:
            return None
        results = self._walk(
            cell,
            lambda task: self.store.lookup(task.key.key),
            export=export,
            cancel=cancel,
            begun=begun,
        )
        return self._content(cell, results, export, begun).tree if results else None

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

        begun = self._stored(cell)
        if cell.origin is None or begun is not None:
            self._walk(cell, resolve, begun=begun)
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
        rules = WaitRules(WAITS * cell.timeout, cancel, wait_report(report, log))
        return StageRunner(
            store=self.store,
            host=self.host,
            cell=cell,
            request=self._request(cell, offline),
            space=BuildSpace(self._budget, rules),
            memory=self._memory,
            expected=self.options.expected,
            known=self._known,
            report=report,
            log=log,
            rules=rules,
            compiler=self._compiler,
        )

    def _build_once(
        self, runner: StageRunner, export_version: str | None, attempt: int, offline: bool
    ) -> Built:
        """Run the stages and put the package together; a failure leaves no folder behind."""
        cell, export = runner.cell, export_version is not None
        started, began = datetime.now(UTC), time.monotonic()
        log, cancel = runner.log, runner.rules.cancel
        begun = None if export else self._begun(runner)
        results: StageResults | None
        if self._shares(cell, export=export):
            results = self._build_shared(runner, offline, begun)
        else:
            plan = self._plan(
                runner.request, cell, export=export, log=log, cancel=cancel,
                begun=begun,
            )  # fmt: skip
            runner.begin(plan)
            until, done = EXPORT if export else "", begun.results if begun else None
            engine, tools = self._made_by(done)
            results = walk(engine, tools, plan, runner.resolve, until=until, begun=done)
        if results is None:
            raise AssertionError("a runner resolves every stage or raises")
        content = self._content(cell, results, export, begun)
        record = build_record(
            self.options.stamp,
            export_version or cell.version,
            results,
            runner.runs,
            started=started,
            seconds=time.monotonic() - began,
            attempt=attempt,
        )
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
            seconds=time.monotonic() - began,
            store=self.store,
            inputs=() if export else begun.inputs if begun else results.files_of(INPUTS),
            export=() if export else begun.export if begun else results.files_of(EXPORT),
            portable=results.files_of(portable_stage(results.plan).name) if cell.profile else (),
            claim=None if export else begun.claim if begun else Claim.of(cell),
        )

    def _stored(self, cell: Cell) -> Begun | None:
        """The package that a cell is compiled from, if the store has it."""
        action = stored(self.store, cell) if cell.origin is not None else None
        return begun_with(self.store, cell, action) if action else None

    def _begun(self, runner: StageRunner) -> Begun | None:
        """The package that a cell is compiled from; None: it is built from the source."""
        if runner.cell.origin is None:
            return None
        if self._fetch is None:
            raise AssertionError("nobody can fetch the package that the cell is compiled from")
        return begin(self.store, runner.cell, self._fetch, runner.rules)

    def _content(
        self, cell: Cell, results: StageResults, export: bool, begun: Begun | None = None
    ) -> PackageContent:
        """What goes into the package. The keys of a cell are noted for `explain`."""
        if export:
            return export_content(cell.model, results)
        note_keys(self.store.notes, cell.id, results.keys)
        self_contained = begun.self_contained if begun else self.options.self_contained
        return cell_content(cell, results, self_contained=self_contained)

    def _build_shared(
        self, runner: StageRunner, offline: bool, begun: Begun | None
    ) -> StageResults | None:
        """The stages of all members of a shared context, each by a runner of its own."""
        runs: list[StageRun] = []

        def portable(name: str, member: Cell) -> StageResults | None:
            if begun is not None:
                runner.begin(begun.results.plan)
                return begun.results
            one = replace(runner, cell=member, request=self._request(member, offline))
            one.begin(self._plan(one.request, member, log=runner.log, cancel=runner.rules.cancel))
            results = walk(self.host.spec.name, self.tools(), one.plan, one.resolve)
            runs.extend(
                replace(run, component=within_group(name, run.component)) for run in one.runs
            )
            runner.begin(one.plan)
            return results

        results = share(runner.cell, portable, self._shared_spec(runner.cell), runner.resolve)
        runner.runs = [*runs, *runner.runs]
        return results

    def _walk(
        self,
        cell: Cell,
        resolve: Callable[[StageTask], Action | None],
        *,
        export: bool = False,
        cancel: threading.Event | None = None,
        begun: Begun | None = None,
    ) -> StageResults | None:
        def walked(one: Cell, resolve: Callable[[StageTask], Action | None]) -> StageResults | None:
            plan = self._plan(self._request(one), one, export=export, cancel=cancel, begun=begun)
            until, done = EXPORT if export else "", begun.results if begun else None
            engine, tools = self._made_by(done)
            return walk(engine, tools, plan, resolve, until=until, begun=done)

        if not self._shares(cell, export=export):
            return walked(cell, resolve)
        return share(
            cell,
            lambda name, one: (
                begun.results if begun else walked(one, lambda task: resolve(placed(task, name)))
            ),
            self._shared_spec(cell),
            resolve,
        )

    def _made_by(self, done: StageResults | None) -> tuple[str, Mapping[str, str]]:
        """The engine and its tools; those of the package for what is compiled from one."""
        return (done.engine, done.tools) if done else (self.host.spec.name, self.tools())

    def _shares(self, cell: Cell, *, export: bool) -> bool:
        return cell.shares_context and not export and self._compiler is not None

    def _shared_spec(self, cell: Cell) -> Callable[[Sequence[str]], StageSpec]:
        if self._compiler is None:
            raise AssertionError("without a compiler nothing shares a context")
        return partial(self._compiler.shared, cell)

    def _request(self, cell: Cell, offline: bool = False) -> Request:
        code, pickle = self.options.remote_code, self.options.pickle
        return request_for(cell, remote_code=code, pickle=pickle, offline=offline)

    def _plan(
        self,
        request: Request,
        cell: Cell,
        *,
        export: bool = False,
        log: Path | None = None,
        cancel: threading.Event | None = None,
        begun: Begun | None = None,
    ) -> BuildPlan:
        """The stages of a cell; the engine is asked once per distinct request of a model."""
        if begun is not None and self._compiler is not None:
            return self._compiler.extend(begun.results.plan, cell)
        key = value_digest(codec.to_json(request))
        if key not in self._plans:
            self._plans[key] = self.host.plan(request, log=log, cancel=cancel)
        plan = self._plans[key]
        return plan if export or self._compiler is None else self._compiler.extend(plan, cell)
