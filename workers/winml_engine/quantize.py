"""The quantize stage of `winml build`: calibrated QDQ or fp16."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from matrix.nearest import hint
from matrix.status import FailureClass
from workers.engine import StageJob, StageReport
from workers.sources import onnx_graph
from workers.sources.errors import network_error, quantize_error
from workers.sources.temporary import temporary_folder
from workers.winml_engine import config as configs
from workers.winml_engine import installed
from workers.winml_engine.config import MODEL, STAND_IN


def run(job: StageJob) -> StageReport:
    """Quantize one component."""
    with temporary_folder(job.out) as temporary:
        calibrated = "calibration" in job.params
        folder = configs.model_folder(job, temporary) if calibrated else None
        with configs.failing_as(FailureClass.QUANTIZE, "the quantization failed"):
            from winml.modelkit.onnx import copy_onnx_model

            settings = _settings(job, folder)
            source = job.inputs["optimize"] / MODEL
            _apply(job.params.get("options", {}), settings, source)
            if calibrated:
                job.progress("making calibration data")
            data = _calibrate(job, settings, source) if calibrated else None
            made = temporary / "quantized.onnx"
            job.progress(f"quantizing to {job.params['precision']}")
            result = _quantize(settings, source, made)
            copy_onnx_model(made, job.out / MODEL)
    facts = {"applied": _applied(settings), "nodes": result.nodes_quantized, "calibration": data}
    return StageReport(facts, {"warnings": list(result.warnings)})


def _settings(job: StageJob, folder: Path | None) -> Any:
    """The model's own quantization settings with the precision of the cell."""
    from winml.modelkit.config import WinMLBuildConfig
    from winml.modelkit.config.precision import resolve_precision
    from winml.modelkit.quant import WinMLQuantizationConfig

    found = configs.read(job.inputs["config"])
    if "recipe" in job.params:
        found["quant"] = job.params["recipe"].get(job.component, {}).get("quant")
    config = WinMLBuildConfig.from_dict(found)
    settings = config.quant or WinMLQuantizationConfig()
    policy = resolve_precision(**{**STAND_IN, "precision": job.params["precision"]})
    if policy.weight_type is not None and policy.activation_type is not None:
        settings.mode = "static"
        settings.weight_type = policy.weight_type
        settings.activation_type = policy.activation_type
    else:
        settings.mode = "fp16"
    settings.task = settings.task or config.loader.task
    settings.model_type = settings.model_type or config.loader.model_type
    settings.model_id = None if folder is None else str(folder)
    return settings


def _apply(options: Mapping[str, Any], settings: Any, model: Path) -> None:
    """The build options of the catalog, in winml-cli's words."""
    for name in ("samples", "per_channel", "symmetric"):
        if name in options:
            setattr(settings, name, options[name])
    if "calibration" in options:
        settings.calibration_method = options["calibration"]
    if kept := options.get("float_ops"):
        settings.nodes_to_exclude = [*(settings.nodes_to_exclude or ()), *_nodes(model, kept)]


def _nodes(model: Path, operators: Collection[str]) -> list[str]:
    import onnx

    nodes = onnx_graph.load(model).graph.node
    known = {node.op_type for node in nodes} | {one.name for one in onnx.defs.get_all_schemas()}
    for name in operators:
        if name not in known:
            raise quantize_error(f"there is no operator '{name}'", hint(name, known))
    return [node.name for node in nodes if node.op_type in operators]


def _quantize(settings: Any, source: Path, made: Path) -> Any:
    """`quantize_onnx`, but a failure raises instead of returning a traceback as text."""
    from winml.modelkit.quant import expand_precision
    from winml.modelkit.quant.calibration import get_quant_finalizer

    finalizer = get_quant_finalizer(settings.model_type) if settings.model_type else None
    if finalizer is not None and settings.calibration_data is None:
        settings = finalizer.finalize(settings, onnx_path=source, model_id=settings.model_id)
    (step,) = expand_precision(config=settings)
    return step.run(source, made, use_external_data=True)


def _calibrate(job: StageJob, settings: Any, model: Path) -> dict[str, Any]:
    """Make the samples that winml-cli would make, and describe them."""
    from winml.modelkit.quant.calibration import get_quant_finalizer

    if settings.calibration_data is not None or get_quant_finalizer(settings.model_type):
        return {"data": "of the model type", "samples": settings.samples}
    from winml.modelkit.datasets import (
        TASK_DATASET_MAPPING,
        DatasetCalibrationReader,
        RandomDataset,
    )

    reader = DatasetCalibrationReader(
        model_name=settings.model_id,
        task=settings.task or "random",
        max_samples=settings.samples,
        dataset_name=settings.dataset_name,
        model_path=model,
    )
    settings.calibration_data = reader
    used = reader._dataset
    if not isinstance(used, RandomDataset):
        return {"data": str(getattr(used, "_dataset_name", "")), "samples": len(reader)}
    lost = TASK_DATASET_MAPPING.get(settings.task) is not None
    if lost and job.params["calibration"] == installed.HUB and not installed.reachable():
        raise network_error(
            "the calibration dataset cannot be fetched from the Hugging Face hub",
            "HF_HUB_OFFLINE=1 calibrates with random samples",
        )
    return {"data": "random", "samples": len(reader), "method": settings.calibration_method}


def _applied(settings: Any) -> dict[str, Any]:
    if settings.mode == "fp16":
        return {"mode": "fp16"}
    return {
        "mode": settings.mode,
        "weights": settings.weight_type,
        "activations": settings.activation_type,
        "method": settings.calibration_method,
        "per_channel": settings.per_channel,
    }
