"""The stages of a cell, with the parameters that can change a byte of each.

Mere names do not become parameters: a target contributes its rule data, its export compatibility
and its precision, and targets that agree in those share the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrix.model import SourceKind
from workers.engine import SOURCE, Request, StageSpec
from workers.sources.errors import unsupported
from workers.sources.source import Resolved, allowed
from workers.winml_engine import installed, network, recipes

DISTRIBUTIONS = (
    "winml-cli", "torch", "transformers", "optimum", "optimum-onnx", "onnx", "onnxscript",
    "numpy", "pandas", "datasets", "timm",
)  # fmt: skip
LOAD = ("engine", "winml-cli", "transformers", "optimum", "optimum-onnx")
EXPORT = (*LOAD, "torch", "onnx", "onnxscript", "numpy", "timm")
GRAPH = ("engine", "winml-cli", "onnx", "onnxruntime", "numpy", "pandas")
CALIBRATE = (*GRAPH, "transformers", "datasets", "torch")

COMMON_OPSET = 17
"""The default opset of a cell, for which winml-cli decides by itself."""
CALIBRATED = ("w8a16", "w8a8")
PRECISIONS = ("fp32", "fp16", *CALIBRATED)
QUANTIZATION = ("calibration", "float_ops", "per_channel", "samples", "symmetric")
"""Build options of calibrated precisions."""


def check(request: Request) -> recipes.Recipe | None:
    """The recipe of a request, if it has one. Raises `StageError` for what winml-cli cannot do."""
    precision = request.policy["precision"]
    if precision not in PRECISIONS:
        hint = f"it builds {', '.join(PRECISIONS)}"
        raise unsupported(f"winml-cli has no precision {precision}", hint)
    return recipes.find(request)


def notices(request: Request, recipe: recipes.Recipe | None) -> list[str]:
    """What the user should know of the build."""
    found = [f"built with the recipe {recipe.name}"] if recipe else []
    if request.policy["precision"] in CALIBRATED and request.model.get("dataset"):
        found.append("the dataset is not used: winml-cli calibrates with its own")
    return found


def stages(request: Request, source: Resolved, recipe: recipes.Recipe | None) -> list[StageSpec]:
    """The stages, in order."""
    task, target = request.model["task"], request.target
    access = _access(request, source)
    is_random = source.kind is SourceKind.RANDOM
    folder = "weights" if is_random else SOURCE
    bent = installed.compatibility(target["provider"], target["device"])
    rules = installed.rule_data(target["provider"], target["device"])
    options = request.policy.get("build") or {}
    optimize = {"rules": rules, **_recipe(recipe, "optim", "auto", "skip_optimize")}
    optimize |= _switches(options)
    found = []
    if is_random:
        made_by = ("engine", "torch", "transformers", "optimum")
        found.append(StageSpec("weights", {"task": task}, (SOURCE,), made_by))
    found += [
        StageSpec("config", {**_config(request, recipe), **access}, (folder,), LOAD),
        StageSpec("export", {"compatibility": bent, **access}, (folder, "config"), EXPORT),
        StageSpec("optimize", optimize, ("export", "config"), GRAPH, per_component=True),
    ]
    precision = request.policy["precision"]
    inputs: tuple[str, ...] = ("optimize", "config")
    params = {"precision": precision, **_recipe(recipe, "quant")}
    if precision in CALIBRATED:
        params |= {"calibration": network.calibration(), **access}
        if given := {name: options[name] for name in QUANTIZATION if name in options}:
            params["options"] = given
        inputs = (*inputs, folder)
    if precision != "fp32":
        tools = CALIBRATE if precision in CALIBRATED else GRAPH
        found.append(StageSpec("quantize", params, inputs, tools, per_component=True))
    return found


def _switches(options: Mapping[str, Any]) -> dict[str, Any]:
    """The switches of the optimizer that the catalog sets, and whether the analyzer sets more."""
    switches = dict.fromkeys(options.get("flags", ()), True)
    switches |= dict.fromkeys(options.get("without_flags", ()), False)
    found: dict[str, Any] = {"switches": switches} if switches else {}
    if "analyzer" in options:
        found["analyzer"] = options["analyzer"]
    return found


def _config(request: Request, recipe: recipes.Recipe | None) -> dict[str, Any]:
    policy = request.policy
    params = {"task": request.model["task"], **_recipe(recipe, "loader", "export")}
    if shapes := dict(policy.get("shapes") or {}):
        params["shapes"] = shapes
    if int(policy["opset"]) != COMMON_OPSET:
        params["opset"] = int(policy["opset"])
    return params


def _recipe(recipe: recipes.Recipe | None, *sections: str) -> dict[str, Any]:
    return {"recipe": recipe.sections(*sections)} if recipe else {}


def _access(request: Request, source: Resolved) -> dict[str, Any]:
    """The parameters that say how the source is read."""
    if source.kind is SourceKind.RANDOM:
        return {}
    commit = {"commit": source.commit} if source.commit else {}
    return {"allow": allowed(request), **commit}
