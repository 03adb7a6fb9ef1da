"""The stage `compile` of a compiled cell: after the last stage that makes the portable model."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from matrix.model import Cell
from matrix.status import FailureClass
from workers.compile.devices import parameters, runtime_for
from workers.compile.group import STAGE, Job, Member, compile_group
from workers.engine import BuildPlan, StageJob, StageReport, StageSpec
from workers.errors import BuildFailed
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing, Runtime

_TOKEN = 16
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
        profile = cell.profile
        if profile is None:
            return plan
        runtime = self._runtime(cell)
        last = portable_stage(plan)
        spec = StageSpec(
            name=STAGE,
            params=parameters(
                runtime, profile, profile.backend, embed=profile.embed, base=self.base
            ),
            inputs=(last.name,),
            tools=(),
            per_component=last.per_component,
        )
        return replace(plan, stages=(*plan.stages, spec))

    def run(
        self,
        job: StageJob,
        cell: Cell,
        key: str,
        *,
        log: Path | None,
        cancel: threading.Event | None,
        scratch: Path,
    ) -> StageReport:
        """Compile one model into `job.out`, with the files that go along with it."""
        if cell.profile is None:
            raise AssertionError("only compiled cells have this stage")
        runtime = self._runtime(cell)
        (folder,) = job.inputs.values()
        model = _model(folder)
        member = Member(cell.id, _placer(folder), f"{model.stem}_{key[:_TOKEN]}.onnx")
        result = compile_group(
            self.runtimes,
            [member],
            Job(
                runtime, cell.profile.backend, cell.profile.embed, scratch,
                timeout=cell.timeout, cancel=cancel, log=log, progress=job.progress,
            ),
        )  # fmt: skip
        if failure := result.failures.get(member.name):
            raise failure
        context = result.contexts[member.name]
        if not context["nodes"]:
            raise BuildFailed(
                FailureClass.UNSUPPORTED,
                STAGE,
                f"{runtime.provider} takes no operator of this model: nothing to compile",
                hint="leave the profile out for it, or choose another precision",
            )
        external = _external(self.runtimes, folder, model)
        for path in _files(folder):
            name = path.relative_to(folder)
            if path != model and name.as_posix() not in external:
                _copy(path, job.out / name)
        _copy(result.folder / member.output, job.out / model.relative_to(folder))
        for name in context["binaries"]:
            _copy(result.folder / name, (job.out / model.relative_to(folder)).parent / name)
        return StageReport(
            facts={
                "contexts": context["nodes"],
                "binaries": context["binaries"],
                "compatibility": context["compatibility"],
            },
            info={
                "seconds": result.seconds[member.name],
                "peak_memory": result.peak_memory,
                "runtime": runtime.to_json(),
            },
        )

    def _runtime(self, cell: Cell) -> Runtime:
        if cell.profile is None:
            raise AssertionError("only compiled cells have a profile")
        found = runtime_for(self.runtimes, cell.profile, cell.target, emulated=self.emulated)
        if isinstance(found, Missing):
            text = f"profile {cell.profile.label} cannot be made here: {found.why}"
            raise BuildFailed(FailureClass.UNSUPPORTED, STAGE, text, hint=found.hint)
        return found


def portable_stage(plan: BuildPlan) -> StageSpec:
    """The stage that makes the portable model."""
    return [one for one in plan.stages if one.name not in {_INPUTS, STAGE}][-1]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _model(folder: Path) -> Path:
    found = [path for path in _files(folder) if path.suffix == ".onnx"]
    if len(found) != 1:
        text = f"there are {len(found)} models to compile instead of one"
        raise BuildFailed(FailureClass.UNKNOWN, STAGE, text, hint="a fault of the engine")
    return found[0]


def _external(runtimes: Runtimes, folder: Path, model: Path) -> set[str]:
    """The files that hold the weights of the portable model: the compiled one has its own."""
    args = {"folder": str(folder.absolute()), "models": [model.relative_to(folder).as_posix()]}
    reply = runtimes.checker.call("contexts", args, stage=STAGE)
    return {name for told in reply.result.values() for name in told["external"]}


def _placer(folder: Path) -> Callable[[Path], str]:
    def place(dest: Path) -> str:
        for path in _files(folder):
            _copy(path, dest / path.relative_to(folder))
        return _model(folder).relative_to(folder).as_posix()

    return place


def _copy(source: Path, dest: Path) -> None:
    dest.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, dest)
