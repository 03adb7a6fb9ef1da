"""The quantize stage: QDQ after calibration, int8 weights alone, or fp16."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.engine import StageJob
from workers.optimum_engine import fp16, order, qdq, weight_only
from workers.sources import model_file
from workers.sources.errors import quantize_error


def _check_floats(source: Path, precision: str) -> None:
    """A ready ONNX file may be quantized already; doing it again would ruin it."""
    import onnx

    if model_file.quantized(onnx.load(str(source / model_file.MODEL), load_external_data=False)):
        raise quantize_error(
            f"the ONNX file is quantized already and cannot be made {precision}",
            'set precision = "fp32" for this model in the catalog to build it as it is',
        )


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Lower the precision of one component."""
    name = next(name for name in job.inputs if name != "inputs")
    source = model_file.find(job.inputs[name], job.component)
    precision, blocked = job.params["precision"], tuple(job.params.get("blocked_ops", ()))
    _check_floats(source, precision)
    if precision == "fp16":
        model, told = fp16.convert(source, temp, blocked)
    elif precision == "w8":
        model, told = weight_only.convert(source, blocked)
    else:
        model, told = qdq.convert(job, source, temp, precision, blocked)
    order.sort(model.graph)
    model_file.save(model, job.out)
    model_file.copy_side_files(source, job.out)
    return {"precision": precision, **told, **model_file.facts(model)}
