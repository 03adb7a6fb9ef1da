"""The engine object: reports its tools, lays out the stages of a cell, runs one stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from machine.installation import install
from matrix.abilities import abilities_of
from workers import code
from workers.engine import (
    SOURCE,
    BuildPlan,
    Request,
    StageError,
    StageJob,
    StageReport,
    StageSpec,
    version,
)
from workers.runtimes import optimize
from workers.samples import datasets, parts
from workers.sources import runtime
from workers.sources.errors import listed, optimize_error, unsupported
from workers.sources.license import run_step
from workers.sources.source import Resolved
from workers.tabular_engine import files

_OWN = "workers.tabular_engine"
CODE = {
    "export": (f"{_OWN}.export",),
    "inputs": (f"{_OWN}.rows",),
    "optimize": ("workers.runtimes.optimize",),
}
"""Stage -> the modules that do its work."""
EXPORT_TOOLS = ("scikit-learn", "skl2onnx", "skops", "onnx", "numpy")
XGBOOST_TOOLS = ("xgboost", "onnxmltools", "skl2onnx", "onnx", "numpy")
SHAPES = ("batch_size",)
_MEMORY = 512 * 1024**2


class TabularEngine:
    """skops and XGBoost load models, skl2onnx and onnxmltools convert them."""

    name = "tabular"

    def tools(self) -> Mapping[str, str]:
        """Versions of every tool that can change a byte of any output."""
        names = dict.fromkeys((*EXPORT_TOOLS, *XGBOOST_TOOLS))
        return {
            **{f"engine.{stage}": code.digest(*own) for stage, own in CODE.items()},
            **{name: version(name) for name in names},
            "onnxruntime": runtime.installed(),
        }

    def plan(self, request: Request) -> BuildPlan:
        """Resolve the source and lay out the stages of a cell."""
        _check(request)
        source = files.resolve(request)
        file = str(source.facts.get("file", ""))
        tools = XGBOOST_TOOLS if file.lower().endswith(files.XGBOOST) else EXPORT_TOOLS
        if missing := [name for name, found in self.tools().items() if not found and name in tools]:
            raise unsupported(f"this interpreter lacks {', '.join(missing)}", install("tabular"))
        specs = [_export(request, source, file, tools), _inputs(request)]
        if step := optimize.stage(request.policy):
            specs.append(step)
        return BuildPlan(
            source=source.as_json(),
            stages=specs,
            memory=_MEMORY + 20 * source.size,  # text and trees of objects take much more
            disk=8 * source.size,
        )

    def run(self, job: StageJob) -> StageReport:
        """Run one stage."""
        from workers.tabular_engine import export, rows

        steps = {
            "export": export.run,
            "inputs": rows.run,
            "optimize": optimize.run,
        }
        step = steps.get(job.stage)
        if step is None:
            raise StageError(f"the tabular engine has no stage '{job.stage}'")
        return run_step(job, step)


def _check(request: Request) -> None:
    """Raise `StageError` for a target or policy that this engine does not build for."""
    policy, target = request.policy, request.target
    abilities = abilities_of(TabularEngine.name)
    if abilities and not abilities.builds_for(target["provider"]):
        raise unsupported(
            f"{target['label']} cannot run tabular models: {abilities.why}",
            "choose a CPU target, e.g. --target mlas_cpu",
        )
    if policy["precision"] != "fp32":
        raise unsupported(
            f"the tabular engine builds only fp32, not {policy['precision']}: thresholds of trees "
            "are compared exactly",
            "leave out the precision",
        )
    if unknown := set(policy.get("shapes") or {}) - set(SHAPES):
        raise optimize_error(f"unknown shape '{min(unknown)}'", f"known: {listed(SHAPES)}")


def _export(request: Request, source: Resolved, file: str, tools: tuple[str, ...]) -> StageSpec:
    params: dict[str, Any] = {
        "task": request.model["task"],
        "opset": int(request.policy["opset"]),
        "source": source.digest,
    }
    if source.commit:
        params["commit"] = source.commit
    if file:
        params["file"] = file
    else:
        tools = tuple(dict.fromkeys((*EXPORT_TOOLS, *XGBOOST_TOOLS)))
    return StageSpec("export", params, (SOURCE,), ("engine.export", *tools, "onnxruntime"))


def _inputs(request: Request) -> StageSpec:
    rule = parts.rule("", (request.policy.get("build") or {}).get("samples"))
    params = datasets.samples_params(request, rule)
    return StageSpec("inputs", params, ("export",), ("engine.inputs", *optimize.TOOLS))
