"""The quantize stage: QDQ after calibration, int8 or 4-bit weights alone, or fp16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix.nearest import hint
from matrix.policy import FOUR_BITS, HALVES
from workers.engine import StageJob
from workers.optimum_engine import attempts, halves, int4, weight_only
from workers.samples import files
from workers.samples.parts import CHOOSE, FIT
from workers.sources import model_file, onnx_graph
from workers.sources.errors import quantize_error

_FIT = 8
"""Samples of the part `fit` that fp16 is tried on beside those of the part `choose`."""


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Lower the precision of one component."""
    name = next(name for name in job.inputs if name not in ("inputs", "rewrites"))
    given = source = model_file.folder_of(job.inputs[name], job.component, temp)
    precision, blocked = job.params["precision"], tuple(job.params.get("blocked_ops", ()))
    graph = model_file.load_graph(source)
    _check_floats(graph, precision)
    _check_operators(graph, blocked)
    del graph
    sets = _samples(job) if precision in HALVES else []
    if precision == "fp16":
        job.progress("converting to fp16")
        model, facts = halves.convert(source, temp, blocked, sets)
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
            model, rest = halves.convert(source, temp, blocked, sets)
            facts = {**facts, **rest, "types": {**facts["types"], **rest["types"]}}
    else:
        model, source, facts = attempts.convert(job, source, temp, precision, blocked)
    if precision in HALVES and (kept := len(facts.get("floats", ()))):
        label = f"{precision}, {kept} operator{'s' * (kept > 1)} in float32"
        facts |= {"applied": {"label": label, "float": kept}}
        facts["notice"] = f"{label}: fp16 cannot hold their values"
    onnx_graph.sort(model.graph)
    model_file.save(model, job.out, source)
    model_file.copy_side_files(given, job.out)
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


def _samples(job: StageJob) -> list[dict[str, Any]]:
    """Those that show the range of values; the verdict is given on others."""
    folder, component = job.inputs["inputs"], job.component
    fit = files.load(folder, component, FIT)
    return [*files.load(folder, component, CHOOSE), *fit[:_FIT]]
