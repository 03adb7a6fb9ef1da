"""The stage `compile` of a compiled cell: after the last stage that makes the portable model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matrix.model import Cell, Profile
from matrix.status import FailureClass
from workers.compile.devices import parameters, runtime_for
from workers.compile.group import STAGE, Job
from workers.compile.sharing import compile_alone, compile_shared
from workers.engine import BuildPlan, Json, StageJob, StageReport, StageSpec
from workers.errors import BuildFailed
from workers.host.watch import Watching
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing, Runtime

_INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class CompileStage:
    """Lays out and runs the stage for the cells of one slot."""

    runtimes: Runtimes
    emulated: bool
    """Whether an emulator of the device may compile."""
    base: Path
    """Where relative paths in options start."""

    def extend(self, plan: BuildPlan, cell: Cell) -> BuildPlan:
        """The plan of a compiled cell. Raises `BuildFailed` where this machine cannot compile."""
        if cell.profile is None:
            return plan
        last = portable_stage(plan)
        spec = self._spec(cell, {}, [last.name], per_component=last.per_component)
        return replace(plan, stages=(*plan.stages, spec))

    def shared(self, cell: Cell, members: Sequence[str]) -> StageSpec:
        """The stage that compiles these members of a cell into one context, in this order."""
        return self._spec(cell, {"members": list(members)}, members)

    def _spec(
        self, cell: Cell, params: Json, inputs: Sequence[str], *, per_component: bool = False
    ) -> StageSpec:
        made_with = parameters(*self._made_for(cell), self.base)
        return StageSpec(STAGE, {**made_with, **params}, inputs, (), per_component)

    def run(
        self, job: StageJob, cell: Cell, key: str, scratch: Path, watching: Watching
    ) -> StageReport:
        """Compile into `job.out`, with the files that go along with the models."""
        how = Job(*self._made_for(cell), scratch, watching)
        compile_it = compile_shared if cell.shares_context else compile_alone
        return compile_it(self.runtimes, job.inputs, job.out, key, how)

    def _made_for(self, cell: Cell) -> tuple[Runtime, Profile]:
        assert cell.profile is not None, "only compiled cells have a profile"
        found = runtime_for(self.runtimes, cell.profile, cell.target, emulated=self.emulated)
        if isinstance(found, Missing):
            text = f"profile {cell.profile.label} cannot be made here: {found.why}"
            failure = found.lost or FailureClass.UNSUPPORTED
            raise BuildFailed(failure, STAGE, text, hint=found.hint, retryable=bool(found.lost))
        return found, cell.profile


def portable_stage(plan: BuildPlan) -> StageSpec:
    """The stage that makes the portable model."""
    return [one for one in plan.stages if one.name not in {_INPUTS, STAGE}][-1]
