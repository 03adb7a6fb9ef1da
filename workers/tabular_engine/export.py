"""The export stage: a trained model becomes an ONNX graph that computes the same.

The converters round thresholds and sum in single precision. Comparing predictions on seeded rows
with those of the library shows whether that matters for this model.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from matrix.verification import EXPORT
from workers.engine import StageJob
from workers.numerics.compare import compare, fault
from workers.sources import model_file, onnx_graph, runtime
from workers.sources.errors import export_error, failing
from workers.sources.ready_files import lower_ir
from workers.tabular_engine import files, original, rows
from workers.tabular_engine.original import Original

ML_OPSET = 3
"""Of ai.onnx.ml, at most: the newest that all converters write."""
NEWEST = 21
COMPARED = 512
"""Rows on which the graph is compared with the model."""
LIMIT = replace(EXPORT, agreement=0.99)
"""Where two classes are equally likely, rounding decides."""


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Convert the model, and compare."""
    opset = int(job.params["opset"])
    if opset > NEWEST:
        raise export_error(f"tabular models have opsets up to {NEWEST}, not {opset}", "lower it")
    job.progress("getting the model's file")
    file = files.fetch(job, temp)
    job.progress("loading the model")
    model = original.load(file, job.params["task"])
    job.progress("converting")
    graph = _converted(model, opset)
    _name_ports(graph, model)
    lower_ir(graph)
    model_file.save(graph, job.out)
    model_file.copy_side_files(file.parent, job.out)
    job.progress("comparing with the model")
    written = model_file.load_graph(job.out)
    sample = rows.sample(written, COMPARED, seed=1)
    found = runtime.run(runtime.session(job.out / model_file.MODEL), sample)
    figures = compare([found], [model.predict(sample[rows.FEATURES])], LIMIT)
    for name, row in figures.items():
        if problem := fault(row, LIMIT, model.library):
            raise export_error(
                f"the exported graph does not compute what {model.library} predicts: "
                f"{name}: {problem}",
                "train the model on float32 values, or in a form that single precision keeps",
            )
    return {
        "components": [],
        "precision": "fp32",
        "library": model.library,
        "estimator": type(model.estimator).__name__,
        "features": model.features,
        "feature_names": list(model.names),
        "classes": list(model.classes),
        "compared": {
            "with": model.library,
            "samples": COMPARED,
            "kind": "synthetic",
            "snr": f">= {LIMIT.snr:g}",
        },
        "figures": figures,
        "graphs": {".": onnx_graph.facts(written)},
    }


def _converted(model: Original, opset: int) -> Any:
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    if model.library == "xgboost":
        _teach_xgboost()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        what = f"{type(model.estimator).__name__} cannot be converted"
        hint = "train on rows of numbers, with steps that skl2onnx supports"
        with failing(export_error, what, hint):
            return skl2onnx.to_onnx(
                model.estimator,
                initial_types=[(rows.FEATURES, FloatTensorType([None, model.features]))],
                options={id(model.estimator): {"zipmap": False}} if model.classes else None,
                target_opset={"": opset, "ai.onnx.ml": ML_OPSET},
                name="model",
            )


def _teach_xgboost() -> None:
    """Let skl2onnx use onnxmltools' converter, whose own entry supports only old opsets."""
    import xgboost
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import (
        calculate_linear_classifier_output_shapes,
        calculate_linear_regressor_output_shapes,
    )

    update_registered_converter(
        xgboost.XGBClassifier,
        "XGBoostXGBClassifier",
        calculate_linear_classifier_output_shapes,
        convert_xgboost,
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )
    update_registered_converter(
        xgboost.XGBRegressor,
        "XGBoostXGBRegressor",
        calculate_linear_regressor_output_shapes,
        convert_xgboost,
    )


def _name_ports(graph: Any, model: Original) -> None:
    """Give the outputs the same names whatever the model is, and a name to the number of rows."""
    names = [value.name for value in graph.graph.output]
    if len(names) != len(model.outputs):
        raise export_error(f"the converter made the outputs {', '.join(names)}")
    renamed = dict(zip(names, model.outputs, strict=True))
    for node in graph.graph.node:
        for ports in (node.input, node.output):
            for index, name in enumerate(ports):
                ports[index] = renamed.get(name, name)
    for value in graph.graph.output:
        value.name = renamed[value.name]
    for value in (*graph.graph.input, *graph.graph.output):
        first = value.type.tensor_type.shape.dim
        if first and not first[0].HasField("dim_value"):
            first[0].dim_param = rows.BATCH
