"""Builds the package folder of a planned cell or of its export."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from machine.files import remove_tree
from machine.scratch import Scratch, sweep_dead
from matrix.digest import value_digest
from matrix.model import Cell
from matrix.status import FailureClass
from workers.build import package
from workers.build.budgets import BuildSpace, DiskBudget, MemoryBudget, NoSpaceNow
from workers.build.built import Built
from workers.build.claim import Claim
from workers.build.context import share
from workers.build.graph import EXPORT, INPUTS, StageResults, StageTask, walk
from workers.build.keys import note_keys
from workers.build.origin import Begun, Fetch, begin
from workers.build.request import request_for
from workers.build.stage_runner import Expectation, LookUp, Member, StageRunner, os_failure
from workers.compile.stage import ALONE, CompileStage, portable_stage
from workers.engine import BuildPlan, Request, to_json
from workers.errors import BuildFailed, CorruptBlob, KnownFailures
from workers.host.client import EngineHost
from workers.host.watch import UNWATCHED, Watching
from workers.store import Action, Store
from workers.store.cache import Cache

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


@dataclass(eq=False)
class Builder:
    """Builds cells, one after the other, in its own engine host; the store may be shared."""

    store: Store
    host: EngineHost
    work_root: Path
    options: BuildOptions = BuildOptions()
    _: KW_ONLY
    budget: DiskBudget | None = None
    memory: MemoryBudget | None = None
    compiler: CompileStage | None = None
    fetch: Fetch | None = None
    """Gets the packages that cells are compiled from; None: only what the store has."""
    cache: Cache | None = None

    def __post_init__(self) -> None:
        sweep_dead(self.work_root)
        self._scratch = Scratch(self.work_root)
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
        watching: Watching = UNWATCHED,
        *,
        export_version: str | None = None,
        offline: bool = False,
        attempt: int = 1,
    ) -> Built:
        """Build a cell. Raises `BuildFailed` or `Cancelled` and then leaves no files behind.

        `export_version`: build the package of the export that the cell is made from instead.
        The store keeps the inputs of the package until `Built.let_go`.
        """
        rules = watching.waits(WAITS * cell.timeout)
        runner = StageRunner(
            store=self.store,
            host=self.host,
            space=BuildSpace(self.budget, rules),
            memory=self.memory,
            expected=self.options.expected,
            known=self._known,
            watching=replace(watching, timeout=cell.timeout),
            rules=rules,
            compiler=self.compiler,
            cache=self.cache,
        )
        bad: list[CorruptBlob] = []
        with closing(runner.space) as space:
            while len(bad) < TRIES:
                try:
                    with ExitStack() as used:
                        used.enter_context(self.store.in_use())
                        built = self._build_once(cell, runner, export_version, attempt, offline)
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
        self, cell: Cell, watching: Watching = UNWATCHED, *, export: bool = False
    ) -> str | None:
        """The tree digest of the package that `build` would make; None unless the store has it all.

        `export`: of the export that the cell is made from.
        """
        begun, lookup = begin(self.store, cell), LookUp(self.store)
        results = self._walk(cell, begun, lookup, watching, export=export)
        return self._content(cell, begun, results, export=export).tree if results else None

    def tools(self) -> dict[str, str]:
        """Versions of the engine's tools."""
        if self._tools is None:
            self._tools = self.host.tools()
        return self._tools

    def keys(self, cell: Cell) -> list[tuple[StageTask, Action | None]]:
        """Every stage run of a cell whose key is known, with its action if the store has one."""
        lookup = LookUp(self.store)
        self._walk(cell, begin(self.store, cell), lookup)
        return lookup.seen

    def close(self) -> None:
        """End the host and remove the packages that were not moved away."""
        self.host.close()
        self._scratch.close()

    def _build_once(
        self,
        cell: Cell,
        runner: StageRunner,
        export_version: str | None,
        attempt: int,
        offline: bool,
    ) -> Built:
        """Run the stages and put the package together; a failure leaves no folder behind."""
        export = export_version is not None
        started, began = datetime.now(UTC), time.monotonic()
        begun = None if export else begin(self.store, cell, self.fetch, runner.rules)
        runner.runs = []
        results = self._walk(cell, begun, runner, runner.watching, export=export, offline=offline)
        assert results is not None, "a runner resolves every stage or raises"
        content = self._content(cell, begun, results, export=export)
        record = package.build_record(
            self.options.stamp,
            export_version or cell.version,
            results,
            runner.runs,
            started=started,
            seconds=time.monotonic() - began,
            attempt=attempt,
        )
        if begun and begun.reference:
            record["reference"] = dict(begun.reference)
        folder = self._scratch.new_folder("package")
        try:
            references = begun.references if begun else ()
            placed = package.assemble(self.store, folder, content, record, references)
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

    def _content(
        self, cell: Cell, begun: Begun | None, results: StageResults, *, export: bool
    ) -> package.PackageContent:
        """What goes into the package. The keys of a cell are noted for `explain`."""
        if export:
            return package.export_content(cell.model, results)
        note_keys(self.store.notes, cell.id, results.keys)
        self_contained = begun.self_contained if begun else self.options.self_contained
        return package.cell_content(cell, results, self_contained=self_contained)

    def _walk(
        self,
        cell: Cell,
        begun: Begun | None,
        resolver: StageRunner | LookUp,
        watching: Watching = UNWATCHED,
        *,
        export: bool = False,
        offline: bool = False,
    ) -> StageResults | None:
        """The stages of a cell, of every member of a shared context; None: some are missing.

        `export`: only of the export that it is made from. What is made of a package names the tools
        of that.
        """
        done, compiler = begun.results if begun else None, None if export else self.compiler
        if cell.origin is not None and done is None and not export:
            return None
        engine, tools = (done.engine, done.tools) if done else (self.host.spec.name, self.tools())
        plans = [done.plan] if done else []

        def stages(name: str, member: Cell) -> StageResults | None:
            request = self._request(member, offline)
            plan = done.plan if done and self.compiler else self._plan(request, watching)
            plans.append(compiler.extend(plan, member) if compiler else plan)
            resolve = partial(resolver.resolve, Member(member, request, plans[-1], name))
            until = EXPORT if export else ""
            return walk(engine, tools, plans[-1], resolve, until=until, begun=done)

        if not cell.shares_context or compiler is None:
            return stages(ALONE, cell)

        def resolve(task: StageTask) -> Action | None:
            return resolver.resolve(Member(cell, self._request(cell, offline), plans[-1]), task)

        spec = partial(compiler.shared, cell)
        return share(cell, lambda name, member: done or stages(name, member), spec, resolve)

    def _request(self, cell: Cell, offline: bool) -> Request:
        code, pickle = self.options.remote_code, self.options.pickle
        return request_for(cell, remote_code=code, pickle=pickle, offline=offline)

    def _plan(self, request: Request, watching: Watching) -> BuildPlan:
        """The engine's stages; it is asked once per distinct request of a model."""
        key = value_digest(to_json(request))
        if key not in self._plans:
            self._plans[key] = self.host.plan(request, watching)
        return self._plans[key]
