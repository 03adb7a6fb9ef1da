"""The quantize stage: QDQ after calibration, int8 weights alone, or fp16."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix.nearest import hint
from workers.engine import StageJob
from workers.optimum_engine import qdq, runtime, weight_only
from workers.sources import model_file, onnx_graph
from workers.sources.errors import one_line, quantize_error


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Lower the precision of one component."""
    name = next(name for name in job.inputs if name != "inputs")
    source = model_file.find(job.inputs[name], job.component)
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
    else:
        model, facts = qdq.convert(job, source, temp, precision, blocked)
    onnx_graph.sort(model.graph)
    model_file.save(model, job.out)
    model_file.copy_side_files(source, job.out)
    return {"precision": precision, **facts, **onnx_graph.facts(model)}


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
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    typed = temp / "typed"
    model_file.save_graph(model_file.load_graph(source), source, typed)
    runtime.add_types(typed, temp / "types")
    model = model_file.load(typed / model_file.MODEL)
    with warnings.catch_warnings(record=True) as truncated:
        warnings.simplefilter("always")
        try:
            model = convert_float_to_float16(
                model,
                keep_io_types=True,
                disable_shape_infer=True,
                op_block_list=[*DEFAULT_OP_BLOCK_LIST, *blocked],
            )
        except (ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
            raise quantize_error(f"fp16 conversion failed: {one_line(error)}") from error
    halves = sum(t.data_type == onnx.TensorProto.FLOAT16 for t in model.graph.initializer)
    floats = sum(t.data_type == onnx.TensorProto.FLOAT for t in model.graph.initializer)
    del model.graph.value_info[:]
    return model, {
        "types": {"float16": halves, "float": floats},
        "truncated_weights": len(truncated),
    }
