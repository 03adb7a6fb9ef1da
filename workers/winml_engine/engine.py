"""The engine object: reports its tools, lays out the stages of a cell, runs one stage.

Mere names do not become parameters of a stage: a target contributes its rule data, its export
compatibility and its precision, and targets that agree in those share the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from matrix.model import SourceKind
from matrix.policy import CALIBRATED
from workers import code
from workers import engine as contract
from workers.samples import datasets, parts
from workers.sources import runtime, source
from workers.sources.errors import unsupported
from workers.sources.license import license_of
from workers.sources.source import Resolved, allowed
from workers.winml_engine import (
    config,
    export,
    inputs,
    installed,
    optimize,
    patches,
    quantize,
    recipes,
)

STAGES = {
    "weights": config.weights,
    "config": config.run,
    "export": export.run,
    "inputs": inputs.run,
    "optimize": optimize.run,
    "quantize": quantize.run,
}
CODE = {
    **{stage: (run.__module__, patches.__name__) for stage, run in STAGES.items()},
    "inputs": (inputs.__name__, "workers.samples"),
}
"""Stage -> the modules that do its work."""
OTHER_RULES = ("WINMLCLI_RULES_DIR", "WINMLCLI_RULES_DIR_FOR_DEBUG")
"""Not passed on: such rule data have no version, so they cannot be part of a key."""
_BASE_MEMORY = 2 * 1024**3
DISTRIBUTIONS = (
    "winml-cli", "torch", "transformers", "optimum", "optimum-onnx", "onnx", "onnxscript",
    "numpy", "pandas", "datasets", "timm", "tokenizers", "pillow",
)  # fmt: skip
LOAD = ("winml-cli", "transformers", "optimum", "optimum-onnx")
EXPORT = (
    *LOAD, "torch", "onnx", "onnxscript", "numpy", "timm", "tokenizers", "pillow", "onnxruntime",
)  # fmt: skip
INPUTS = ("transformers", "tokenizers", "pillow", "optimum", "onnxruntime", "numpy")
GRAPH = ("winml-cli", "onnx", "onnxruntime", "numpy", "pandas")
CALIBRATE = (*GRAPH, "transformers", "datasets", "torch")

COMMON_OPSET = 17
"""The default opset of a cell, for which winml-cli decides by itself."""
PRECISIONS = ("fp32", "fp16", *CALIBRATED)
QUANTIZATION = ("calibration", "float_ops", "per_channel", "samples", "symmetric")
"""Build options of calibrated precisions."""


class WinmlEngine:
    """The real winml-cli through its Python API, in a warm process."""

    name = "winml"

    def tools(self) -> Mapping[str, str]:
        """Versions of every tool that can change a byte of any output."""
        return {
            **{f"engine.{stage}": code.digest(*names) for stage, names in CODE.items()},
            **{name: contract.version(name) for name in DISTRIBUTIONS},
            "onnxruntime": runtime.installed(),
        }

    def plan(self, request: contract.Request) -> contract.BuildPlan:
        """Resolve the source and lay out the stages of a cell."""
        installed.check()
        if request.model["source"].get("file"):
            raise unsupported(
                "the winml engine does not take ready ONNX files", "use --engine optimum"
            )
        installed.calibration()  # it may change settings that the next lines read
        precision = request.policy["precision"]
        if precision not in PRECISIONS:
            hint = f"it builds {', '.join(PRECISIONS)}"
            raise unsupported(f"the engine winml does not build {precision}", hint)
        recipe = recipes.find(request)
        resolved = source.resolve(request)
        return contract.BuildPlan(
            source=resolved.as_json(),
            stages=_stages(request, resolved, recipe),
            notices=_notices(request, recipe),
            memory=_BASE_MEMORY + 5 * resolved.size if resolved.size else 0,
            disk=4 * resolved.size,
        )

    def run(self, job: contract.StageJob) -> contract.StageReport:
        """Run one stage."""
        if job.stage not in STAGES:
            raise contract.StageError(f"the winml engine has no stage '{job.stage}'")
        started = time.monotonic()
        _prepare()
        ready = time.monotonic()
        report = STAGES[job.stage](job)
        timings = {"imports": ready - started, "work": time.monotonic() - ready}
        rounded = {name: round(value, 3) for name, value in timings.items()}
        exports, commit = job.stage == "export", job.params.get("commit")
        told = license_of(job.request, commit, job.out) if exports else {}
        return contract.StageReport(report.facts, {**report.info, **told, "timings": rounded})


def _prepare() -> None:
    """Prepare winml-cli; only the first call in a process has an effect."""
    for name in OTHER_RULES:
        os.environ.pop(name, None)
    installed.calibration()
    patches.install(contract.version("winml-cli"))
    import onnxruntime

    onnxruntime.disable_telemetry_events()  # no variable does this on Windows


def _notices(request: contract.Request, recipe: recipes.Recipe | None) -> list[str]:
    """What the user should know of the build."""
    found = [f"built with the recipe {recipe.name}"] if recipe else []
    if request.policy["precision"] in CALIBRATED and request.model.get("dataset"):
        found.append("the dataset serves verification only: winml-cli calibrates with its own")
    return found


def _stages(
    request: contract.Request, source: Resolved, recipe: recipes.Recipe | None
) -> list[contract.StageSpec]:
    """The stages, in order."""
    task, target = request.model["task"], request.target
    access = _access(request, source)
    new = {"new_head": True} if request.model.get("new_head") else {}
    is_random = source.kind is SourceKind.RANDOM
    folder = "weights" if is_random else contract.SOURCE
    bent = installed.compatibility(target["provider"], target["device"])
    rules = installed.rule_data(target["provider"], target["device"])
    options = request.policy.get("build") or {}
    optimize = {"rules": rules, **_recipe(recipe, "optim", "auto", "skip_optimize")}
    optimize |= _switches(options)
    found = []
    if is_random:
        made_by = ("torch", "transformers", "optimum")
        found.append(contract.StageSpec("weights", {"task": task}, (contract.SOURCE,), made_by))
    found += [
        contract.StageSpec("config", {**_config(request, recipe), **access}, (folder,), LOAD),
        contract.StageSpec(
            "export", {"compatibility": bent, **new, **access}, (folder, "config"), EXPORT
        ),
        contract.StageSpec(
            "inputs", {**_inputs(request), **access}, (folder, "config", "export"), INPUTS
        ),
        contract.StageSpec("optimize", optimize, ("export", "config"), GRAPH, per_component=True),
    ]
    precision = request.policy["precision"]
    given: tuple[str, ...] = ("optimize", "config")
    params = {"precision": precision, **_recipe(recipe, "quant")}
    if precision in CALIBRATED:
        params |= {"calibration": installed.calibration(), **access}
        if chosen := {name: options[name] for name in QUANTIZATION if name in options}:
            params["options"] = chosen
        given = (*given, folder)
    if precision != "fp32":
        tools = CALIBRATE if precision in CALIBRATED else GRAPH
        found.append(contract.StageSpec("quantize", params, given, tools, per_component=True))
    return [replace(one, tools=(f"engine.{one.name}", *one.tools)) for one in found]


def _switches(options: Mapping[str, Any]) -> dict[str, Any]:
    """The switches of the optimizer that the catalog sets, and whether the analyzer sets more."""
    switches = dict.fromkeys(options.get("flags", ()), True)
    switches |= dict.fromkeys(options.get("without_flags", ()), False)
    found: dict[str, Any] = {"switches": switches} if switches else {}
    if "analyzer" in options:
        found["analyzer"] = options["analyzer"]
    return found


def _config(request: contract.Request, recipe: recipes.Recipe | None) -> dict[str, Any]:
    policy = request.policy
    params = {"task": request.model["task"], **_recipe(recipe, "loader", "export")}
    if shapes := dict(policy.get("shapes") or {}):
        params["shapes"] = shapes
    if int(policy["opset"]) != COMMON_OPSET:
        params["opset"] = int(policy["opset"])
    return params


def _inputs(request: contract.Request) -> dict[str, Any]:
    """The build option `samples` is not among them: it counts winml-cli's own."""
    task = request.model["task"]
    return {"task": task, **datasets.samples_params(request, parts.rule(task))}


def _recipe(recipe: recipes.Recipe | None, *sections: str) -> dict[str, Any]:
    return {"recipe": recipe.sections(*sections)} if recipe else {}


def _access(request: contract.Request, source: Resolved) -> dict[str, Any]:
    """The parameters that say how the source is read."""
    if source.kind is SourceKind.RANDOM:
        return {}
    commit = {"commit": source.commit} if source.commit else {}
    return {"allow": allowed(request), **commit}
