"""The optimize stage: fixed shapes if asked, then ONNX Runtime's offline graph passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matrix.policy import FOUR_BITS
from matrix.vocabulary import EXTENDED_PASSES
from workers.engine import StageJob, StageSpec
from workers.samples import files
from workers.samples.parts import CHOOSE
from workers.sources import model_file, onnx_graph, runtime
from workers.sources.errors import optimize_error

TOOLS = ("onnx", "onnxruntime", "numpy")
"""What can change the bytes of a graph, beside the engine's own code."""
HIDING = ("AttentionFusion", "EmbedLayerNormFusion")
"""Passes that put weights into operators which take no 4-bit ones."""


def stage(policy: Mapping[str, Any]) -> StageSpec | None:
    """The stage that a policy asks for; None: the graph stays as the export made it."""
    options: Mapping[str, Any] = policy.get("build") or {}
    level = options.get("optimization", policy["optimization"])
    static, blocked = bool(policy["static_shapes"]), set(policy["blocked_passes"])
    blocked |= set(options.get("without_passes", ()))
    if policy["precision"] in FOUR_BITS and level == "extended":
        blocked |= set(HIDING)
    if passes := options.get("passes"):
        level = "extended"
        blocked |= set(EXTENDED_PASSES) - set(passes)
    if level == "disabled" and not static:
        return None
    params: dict[str, Any] = {"level": level, "static_shapes": static}
    if level != "disabled" and blocked:
        params["blocked_passes"] = sorted(blocked)
    inputs = ("export", "inputs") if static else ("export",)
    return StageSpec("optimize", params, inputs, ("engine.optimize", *TOOLS), per_component=True)


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Optimize one component."""
    source = model_file.folder_of(job.inputs["export"], job.component, temp)
    level = job.params["level"]
    facts: dict[str, Any] = {"precision": "fp32", "level": level}
    before = runtime.signature(source / model_file.MODEL)
    file = source / model_file.MODEL
    sets = []
    if job.params["static_shapes"]:
        sets = files.load(job.inputs["inputs"], job.component, CHOOSE)
        file = _with_shapes(source, temp / "fixed", sets[0])
    target = temp / "optimized" / model_file.MODEL
    target.parent.mkdir()
    head = model_file.load_graph(source)
    blocked = {*job.params.get("blocked_passes", ()), *_misnaming(onnx_graph.opset(head))}
    job.progress(f"optimizing ({level})")
    runtime.optimize(file, target, level, sorted(blocked))
    if sets:
        job.progress("fixing the shapes of outputs")
        facts["static"] = _settle_outputs(target, sets)
    model = model_file.load_graph(target.parent)
    model_file.set_apart(model, onnx_graph.tensor_names(head))
    for node in list(onnx_graph.nodes(model)):  # in an order that the system decided
        node.attribute.sort(key=lambda one: one.name)
    if list(runtime.signature(target)) != list(before):
        raise optimize_error("the optimized graph has other inputs than the export")
    _check_operators(model, head, level)
    model_file.save(model, job.out, target.parent)
    model_file.copy_side_files(source, job.out)
    return facts | onnx_graph.facts(model)


def _check_operators(model: Any, before: Any, level: str) -> None:
    strange = onnx_graph.unknown(model)
    if level == "basic":
        strange += sorted(onnx_graph.contrib(model))
    # A ready ONNX file may contain such operators from the start.
    strange = [name for name in strange if name not in onnx_graph.operators(before)]
    if strange:
        raise optimize_error(
            f"the {level} level put {strange[0]} into the graph, which other runtimes do not know",
            "block the pass that makes it in the target's blocked_passes",
        )


def _misnaming(opset: int) -> Iterator[str]:
    """Passes that put operators of ONNX Runtime into the standard domain."""
    yield "SimplifiedLayerNormFusion"
    if opset < 17:
        yield from ("LayerNormFusion", "LayerNormFusionL1", "LayerNormFusionL2")


def _with_shapes(source: Path, folder: Path, sample: Mapping[str, Any]) -> Path:
    """The graph with the shapes of its inputs fixed, its weights linked beside it."""
    model = model_file.load_graph(source)
    fix_inputs(model, sample)
    return model_file.save_graph(model, source, folder)


def _settle_outputs(file: Path, sets: list[dict[str, Any]]) -> bool:
    """Fix output shapes that inference leaves open, if two runs agree on them."""
    import onnx

    model = onnx.load(str(file), load_external_data=False)
    if not dynamic(model):
        return True
    ready = runtime.session(file)
    runs = [runtime.run(ready, sample) for sample in (sets[0], sets[-1])]
    del ready
    agreed = {name: array for name, array in runs[0].items() if array.shape == runs[1][name].shape}
    fix_outputs(model, agreed)
    onnx.save(model, str(file))
    return not dynamic(model)


def fix_inputs(model: Any, inputs: Mapping[str, Any]) -> None:
    """Give a graph's inputs the shapes of these arrays and remove all other known shapes.

    The names of dimensions are not reliable (`past + current`), so the arrays decide; ONNX Runtime
    infers inner and output shapes again when it writes the graph.
    """
    for value in model.graph.input:
        if value.name in inputs:
            _set_shape(value, inputs[value.name].shape)
    del model.graph.value_info[:]
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()


def fix_outputs(model: Any, outputs: Mapping[str, Any]) -> None:
    """Give a graph's outputs the shapes that a run produced."""
    for value in model.graph.output:
        if value.name in outputs:
            _set_shape(value, outputs[value.name].shape)


def dynamic(model: Any) -> list[str]:
    """The inputs and outputs that still have an open dimension."""
    return [
        value.name
        for value in (*model.graph.input, *model.graph.output)
        if onnx_graph.is_open(value)
    ]


def _set_shape(value: Any, shape: tuple[int, ...]) -> None:
    dims = value.type.tensor_type.shape
    del dims.dim[:]
    for size in shape:
        dims.dim.add(dim_value=size)
