"""The engine object: reports its tools, lays out the stages of a cell, runs one stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine.files import read_json
from machine.installation import install
from matrix.build_options import LEVELS
from matrix.model import SourceKind
from matrix.policy import CALIBRATED, FORMS, FOUR_BITS, HALVES, PLAIN_FORM
from matrix.verification import Limit
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
from workers.optimum_engine import decoders
from workers.optimum_engine.architectures import rows
from workers.optimum_engine.architectures.shapes import SHAPES
from workers.runtimes import optimize
from workers.samples import datasets, parts
from workers.sources import runtime, source
from workers.sources.errors import listed, optimize_error, quantize_error, unsupported
from workers.sources.license import run_step
from workers.sources.source import Resolved, allowed

NONE = "none"
"""In place of the version of a tool that few models need."""

_BASE_MEMORY = 1536 * 1024**2


_APART = 2 * 1024**3
"""From this size on torch's exporter writes weights to files of their own: protobuf's limit."""


def _memory(size: int) -> int:
    """What a stage is expected to take; `tests.bench.memory` measures it. 0: unknown."""
    if not size:
        return 0
    return _BASE_MEMORY + int((1.3 if size > _APART else 4) * size)


class OptimumEngine:
    """Optimum for the export, ONNX Runtime for everything after it."""

    name = "optimum"

    def tools(self) -> Mapping[str, str]:
        """Versions of every tool that can change a byte of any output."""
        return {
            **{f"engine.{stage}": code.digest(*names) for stage, names in CODE.items()},
            **{name: version(name) for name in EXPORT_TOOLS},
            "onnxruntime": runtime.installed(),
            "onnxscript": version("onnxscript") or NONE,
            "pillow": version("pillow") or NONE,
        }

    def plan(self, request: Request) -> BuildPlan:
        """Resolve the source and lay out the stages of a cell."""
        missing = [name for name, found in self.tools().items() if not found]
        if missing:
            lacking = ", ".join(missing)
            raise unsupported(f"this interpreter lacks {lacking}", install("build"))
        resolved = source.resolve(request)
        stages = stages_of(request, resolved)
        # The graphs of a decoder with a cache have the same weights, until they share them.
        graphs = 2 if any(spec.name == "share" for spec in stages) else 1
        return BuildPlan(
            source=resolved.as_json(),
            stages=stages,
            memory=_memory(resolved.size),
            disk=4 * graphs * resolved.size,
        )

    def run(self, job: StageJob) -> StageReport:
        """Run one stage."""
        from workers.optimum_engine import export, inputs, quantize, rewrites, shared_weights
        from workers.optimum_engine.architectures import families

        steps = {
            "export": export.run,
            "inputs": inputs.run,
            "optimize": optimize.run,
            "rewrites": rewrites.run,
            "quantize": quantize.run,
            "share": shared_weights.run,
        }
        step = steps.get(job.stage)
        if step is None:
            raise StageError(f"the optimum engine has no stage '{job.stage}'")
        if not job.request.model["source"].get("file"):  # the only one that needs no torch
            families.register()
        return run_step(job, step)


_OWN = "workers.optimum_engine"
CODE = {
    "export": (f"{_OWN}.export", f"{_OWN}.architectures"),
    "inputs": (f"{_OWN}.inputs", f"{_OWN}.architectures", "workers.samples"),
    "optimize": ("workers.runtimes.optimize",),
    "rewrites": (f"{_OWN}.rewrites",),
    "quantize": (f"{_OWN}.quantize",),
    "share": (f"{_OWN}.shared_weights",),
}
"""Stage -> the modules and packages that do its work."""
EXPORT_TOOLS = (
    "torch", "transformers", "tokenizers", "pillow", "optimum", "optimum-onnx", "onnx", "numpy",
)  # fmt: skip
INPUT_TOOLS = (
    "transformers", "tokenizers", "pillow", "optimum", "optimum-onnx", "onnxruntime", "numpy",
)  # fmt: skip
READY_TOOLS = ("onnx", "numpy")
GRAPH_TOOLS = optimize.TOOLS

BLOCK_SIZE = 32
"""Values of a 4-bit weight that share a scale."""
PRECISIONS = ("fp32", "fp16", "w8a16", "w8a8", "w8", "w4", "w4a16")
QUANTIZERS = ("qnn",)
CALIBRATION = ("calibration", "per_channel", "symmetric")
"""Build options of calibrated precisions that go to the stage as they are."""
STEPS = {
    "percentile": "calibration", "smooth": "", "wide": "", "wider": "", "float": "float_ops",
}  # fmt: skip
"""In which order a graph that misses parity is quantized again (`attempts`), each with the build
option that decides in its place."""


def stages_of(request: Request, source: Resolved) -> list[StageSpec]:
    """The stages of a cell, in order. Raises `StageError` for a policy this engine cannot do."""
    policy = request.policy
    _check(policy, ready=bool(request.model["source"].get("file")))
    specs = [_export(request, source), _inputs(request, source)]
    last = "export"
    if step := optimize.stage(policy):
        specs.append(step)
        last = "optimize"
    if step := _quantize(policy, last, request.model["task"]):
        if policy["precision"] in CALIBRATED:
            specs.append(_rewrites(policy, last))
        specs.append(step)
        last = "quantize"
    if decoders.generates(request.model["task"]) and not request.model["source"].get("file"):
        inputs = tuple(dict.fromkeys((last, "export")))
        specs.append(StageSpec("share", {}, inputs, ("engine.share", *GRAPH_TOOLS)))
    return specs


def _export(request: Request, source: Resolved) -> StageSpec:
    tools: tuple[str, ...] = ("engine.export", *EXPORT_TOOLS)
    params: dict[str, Any] = {
        "task": request.model["task"],
        "opset": int(request.policy["opset"]),
        "source": source.digest,
    }
    if source.commit:
        params["commit"] = source.commit
    if file := request.model["source"].get("file"):
        del params["task"]  # nothing is exported
        tools = ("engine.export", *READY_TOOLS)
        return StageSpec("export", {**params, "file": file}, (SOURCE,), tools)
    if source.kind is not SourceKind.RANDOM:
        params["allow"] = allowed(request)
        if request.model.get("new_head"):
            params["new_head"] = True
    architecture = _architecture(request, source)
    if (exporter := rows.exporter(architecture)) != rows.TORCHSCRIPT:
        params["exporter"] = exporter
        tools += ("onnxscript",)
    if extensions := rows.versions(architecture):
        params["extensions"] = extensions
    return StageSpec("export", params, (SOURCE,), tools)


def _architecture(request: Request, source: Resolved) -> str:
    """The architecture, if it is known before the export; the export checks it."""
    if source.kind is SourceKind.RANDOM:
        return str(request.model["source"]["ref"])
    if source.kind is not SourceKind.FOLDER:
        return str(request.model.get("model_type") or "")
    try:
        found = read_json(Path(request.model["source"]["ref"], "config.json")).get("model_type")
    except (OSError, ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


def _inputs(request: Request, source: Resolved) -> StageSpec:
    task = request.model["task"]
    rule = parts.rule(task, _options(request.policy).get("samples"))
    params = {"task": task, **datasets.samples_params(request, rule)}
    if extensions := rows.versions(_architecture(request, source)):
        params["extensions"] = extensions
    return StageSpec("inputs", params, ("export",), ("engine.inputs", *INPUT_TOOLS))


def _rewrites(policy: Mapping[str, Any], last: str) -> StageSpec:
    """The same for every model, unless the provider needs some."""
    params: dict[str, Any] = {}
    inputs: tuple[str, ...] = ()
    if wanted := policy["rewrites"]:
        params = {"precision": policy["precision"], "rewrites": sorted(wanted)}
        inputs = (last,)
    tools = ("engine.rewrites", *GRAPH_TOOLS)
    return StageSpec("rewrites", params, inputs, tools, per_component=True)


def _quantize(policy: Mapping[str, Any], last: str, task: str) -> StageSpec | None:
    precision = policy["precision"]
    if precision == "fp32":
        return None
    params: dict[str, Any] = {"precision": precision}
    options = _options(policy)
    if blocked := {*policy["blocked_ops"], *options.get("float_ops", ())}:
        params["blocked_ops"] = sorted(blocked)
    inputs: Sequence[str] = (last,)
    if precision in CALIBRATED:
        params["quantizer"] = policy["quantizer"] or QUANTIZERS[0]
        inputs = (last, "inputs", "rewrites")
        params["channels"] = sorted(policy["channels"])
        params |= {name: options[name] for name in CALIBRATION if name in options}
        if options.get("requantize", True):
            params["parity"] = _parity(policy, task)
            params["requantize"] = [
                step
                for step, by in STEPS.items()
                if by not in options and (step != "smooth" or precision == "w8a8")
            ]
    if precision in HALVES:
        inputs = (last, "inputs")
    if precision in FOUR_BITS:
        params["weights"] = {
            "form": policy["quantizer"] or PLAIN_FORM,
            "block_size": options.get("block_size", BLOCK_SIZE),
            "symmetric": options.get("symmetric", False),
        }
        if (level := policy["accuracy_level"]) and policy["quantizer"] != PLAIN_FORM:
            params["weights"]["accuracy_level"] = level
    tools = ("engine.quantize", *GRAPH_TOOLS)
    return StageSpec("quantize", params, inputs, tools, per_component=True)


def _parity(policy: Mapping[str, Any], task: str) -> dict[str, Any]:
    """What decides whether an attempt is good enough: the limits, and the task's decisions."""
    usual, given = Limit.usual(policy["precision"]), dict(policy.get("parity") or {})
    kept = {"snr": usual.snr, "agreement": usual.agreement, "floor": usual.floor, "task": task}
    return {**kept, **given}


def _options(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """The build options of the catalog (`matrix.build_options`)."""
    found: Mapping[str, Any] = policy.get("build") or {}
    return found


def _check(policy: Mapping[str, Any], *, ready: bool) -> None:
    precision = policy["precision"]
    quantizer = policy["quantizer"] if precision in CALIBRATED else None
    form = policy["quantizer"] if precision in FOUR_BITS else None
    for what, value, known, error in (
        ("precision", precision, PRECISIONS, quantize_error),
        ("optimization level", policy["optimization"], LEVELS, optimize_error),
        ("quantizer", quantizer or QUANTIZERS[0], QUANTIZERS, quantize_error),
        ("form of 4-bit weights", form or PLAIN_FORM, FORMS, quantize_error),
    ):
        if value not in known:
            raise error(f"the optimum engine has no {what} '{value}'", listed(known))
    # A ready ONNX file has its own names for its axes.
    if not ready and (unknown := set(policy.get("shapes") or {}) - set(SHAPES)):
        raise optimize_error(f"unknown shape '{min(unknown)}'", f"known: {listed(SHAPES)}")
