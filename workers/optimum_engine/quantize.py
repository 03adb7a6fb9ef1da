"""The quantize stage: QDQ after calibration, int8 or 4-bit weights alone, or fp16."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix.nearest import hint
from matrix.policy import FOUR_BITS
from workers.engine import StageJob
from workers.optimum_engine import attempts, int4, weight_only
from workers.optimum_engine.patched import patched
from workers.sources import model_file, onnx_graph, runtime, weight_file
from workers.sources.errors import one_line, quantize_error


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Lower the precision of one component."""
    name = next(name for name in job.inputs if name != "inputs")
    given = source = model_file.folder_of(job.inputs[name], job.component, temp)
    precision, blocked = job.params["precision"], tuple(job.params.get("blocked_ops", ()))
    graph = model_file.load_graph(source)
    _check_floats(graph, precision)
    _check_operators(graph, blocked)
    del graph
    if precision == "fp16":
        job.progress("converting to fp16")
        model, facts = to_fp16(source, temp, blocked)
    elif precision == "w8":
        job.progress("quantizing the weights")
        model, facts = weight_only.convert(source, blocked)
    elif precision in FOUR_BITS:
        job.progress("quantizing the weights")
        model, facts = int4.convert(source, blocked, job.params["weights"])
        if precision == "w4a16":
            onnx_graph.sort(model.graph)
            model_file.save(model, temp / "int4", source)
            source = temp / "int4"
            job.progress("converting the rest to fp16")
            model, rest = to_fp16(source, temp, blocked)
            facts = {**facts, **rest, "types": {**facts["types"], **rest["types"]}}
    else:
        model, source, facts = attempts.convert(job, source, temp, precision, blocked)
    onnx_graph.sort(model.graph)
    model_file.save(model, job.out, source)
    model_file.copy_side_files(given, job.out)
    return {"precision": precision, **facts, **onnx_graph.facts(model)}


def _value_info(tensor: Any) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)


def _floats_beside(model: Any, source: Path) -> set[str]:
    """The names of the float weights beside a graph; constants, which have no name, are read."""
    import onnx

    found = set()
    weights = {tensor.name for one in onnx_graph.graphs(model) for tensor in one.initializer}
    for tensor in onnx_graph.tensors(model):
        if tensor.name not in weights:
            weight_file.take_in(tensor, source)
        elif tensor.data_type == onnx.TensorProto.FLOAT and onnx_graph.external(tensor):
            found.add(tensor.name)
    return found


def _halve(model: Any, names: Container[str], source: Path) -> None:
    """Convert the weights beside a graph: the converter changes their type and not their bytes."""
    import numpy as np
    import onnx
    from onnxruntime.transformers.float16 import convert_np_to_float16

    for tensor in onnx_graph.tensors(model):
        if tensor.data_type != onnx.TensorProto.FLOAT16 or tensor.name not in names:
            continue
        tensor.data_type = onnx.TensorProto.FLOAT
        values = weight_file.values(tensor, source)
        halves = np.empty(values.shape, np.float16)
        for part in weight_only.parts(values):
            halves[part] = convert_np_to_float16(values[part])
        tensor.CopyFrom(onnx.numpy_helper.from_array(halves, tensor.name))


def _check_floats(graph: Any, precision: str) -> None:
    """Refuse a ready ONNX file that is quantized already: a second time would ruin it."""
    if onnx_graph.quantized(graph):
        raise quantize_error(
            f"the ONNX file is quantized already and cannot be made {precision}",
            'set precision = "fp32" for this model in the catalog to build it as it is',
        )


def _check_operators(graph: Any, names: Sequence[str]) -> None:
    """Refuse misspelt operators: ONNX Runtime's tools ignore them."""
    import onnx

    known = {schema.name for schema in onnx.defs.get_all_schemas()} | {
        node.op_type for inner in onnx_graph.graphs(graph) for node in inner.node
    }
    for name in names:
        if name not in known:
            raise quantize_error(f"there is no operator '{name}'", hint(name, known))


def to_fp16(source: Path, temp: Path, blocked: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The graph in half precision with float32 inputs and outputs, and facts about it."""
    import onnx
    from onnxruntime.transformers import float16

    typed = temp / "typed"
    model_file.save_graph(model_file.load_graph(source), source, typed)
    runtime.add_types(typed, temp / "types")
    model = model_file.load_graph(typed)
    beside = _floats_beside(model, source)
    # It reads a whole weight for its shape.
    named = patched("make_value_info_from_tensor", _value_info, float16)
    with warnings.catch_warnings(record=True) as truncated, named:
        warnings.simplefilter("always")
        try:
            model = float16.convert_float_to_float16(
                model,
                keep_io_types=True,
                disable_shape_infer=True,
                op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *blocked],
            )
        except (ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
            raise quantize_error(f"fp16 conversion failed: {one_line(error)}") from error
        _halve(model, beside, source)
    halves = sum(t.data_type == onnx.TensorProto.FLOAT16 for t in model.graph.initializer)
    floats = sum(t.data_type == onnx.TensorProto.FLOAT for t in model.graph.initializer)
    del model.graph.value_info[:]
    return model, {
        "types": {"float16": halves, "float": floats},
        "truncated_weights": len(truncated),
    }
