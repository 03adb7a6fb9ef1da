"""The stages of a cell, with the parameters that can change a byte of each.

Mere names do not become parameters: a target contributes its rule data, its export compatibility
and its precision, and targets that agree in those share the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Layout:
    """The stages of one request."""

    request: Request
    notices: list[str] = field(default_factory=list)
    recipe: recipes.Recipe | None = None

    def __post_init__(self) -> None:
        precision = self.request.policy["precision"]
        if precision not in PRECISIONS:
            hint = f"it builds {', '.join(PRECISIONS)}"
            raise unsupported(f"winml-cli has no precision {precision}", hint)
        self.recipe = recipes.find(self.request)
        if self.recipe:
            self.notices.append(f"built with the recipe {self.recipe.name}")
        if precision in CALIBRATED and self.request.model.get("dataset"):
            self.notices.append("the dataset is not used: winml-cli calibrates with its own")

    def specs(self, source: Resolved) -> list[StageSpec]:
        """The stages, in order."""
        is_random = source.kind is SourceKind.RANDOM
        folder = "weights" if is_random else SOURCE
        found = [self._weights()] if is_random else []
        found += [
            StageSpec("config", self._config(source), (folder,), LOAD),
            StageSpec("export", self._export(source), (folder, "config"), EXPORT),
            StageSpec(
                "optimize", self._optimize(), ("export", "config"), GRAPH, per_component=True
            ),
        ]
        if self.request.policy["precision"] != "fp32":
            found.append(self._quantize(source, folder))
        return found

    def _weights(self) -> StageSpec:
        tools = ("engine", "torch", "transformers", "optimum")
        return StageSpec("weights", {"task": self.request.model["task"]}, (SOURCE,), tools)

    def _config(self, source: Resolved) -> dict[str, Any]:
        policy = self.request.policy
        params = {"task": self.request.model["task"], **self._access(source)}
        if shapes := dict(policy.get("shapes") or {}):
            params["shapes"] = shapes
        if int(policy["opset"]) != COMMON_OPSET:
            params["opset"] = int(policy["opset"])
        if self.recipe:
            params["recipe"] = self.recipe.sections("loader", "export")
        return params

    def _export(self, source: Resolved) -> dict[str, Any]:
        target = self.request.target
        bent = installed.compatibility(target["provider"], target["device"])
        return {"compatibility": bent, **self._access(source)}

    def _optimize(self) -> dict[str, Any]:
        target = self.request.target
        params: dict[str, Any] = {
            "rules": installed.rule_data(target["provider"], target["device"])
        }
        if self.recipe:
            params["recipe"] = self.recipe.sections("optim", "auto", "skip_optimize")
        return params

    def _quantize(self, source: Resolved, folder: str) -> StageSpec:
        precision = self.request.policy["precision"]
        params: dict[str, Any] = {"precision": precision}
        if self.recipe:
            params["recipe"] = self.recipe.sections("quant")
        if precision not in CALIBRATED:
            inputs: tuple[str, ...] = ("optimize", "config")
            return StageSpec("quantize", params, inputs, GRAPH, per_component=True)
        params |= {"calibration": network.calibration(), **self._access(source)}
        inputs = ("optimize", "config", folder)
        return StageSpec("quantize", params, inputs, CALIBRATE, per_component=True)

    def _access(self, source: Resolved) -> dict[str, Any]:
        """The parameters that say how the source is read."""
        if source.kind is SourceKind.RANDOM:
            return {}
        allow: Mapping[str, bool] = allowed(self.request)
        found: dict[str, Any] = {"allow": dict(allow)}
        if source.commit:
            found["commit"] = source.commit
        return found
