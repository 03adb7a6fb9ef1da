"""The export stage: a trained model becomes an ONNX graph that computes the same.

The converters round thresholds and sum in single precision. Comparing predictions on seeded rows
with those of the library shows whether that matters for this model.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from machine.installation import install
from matrix.verification import EXPORT
from workers.engine import StageJob
from workers.numerics.compare import compare, fault
from workers.sources import model_file, onnx_graph, runtime
from workers.sources.errors import export_error, failing, unsupported
from workers.sources.ready_files import lower_ir
from workers.tabular_engine import files, rows, trusted

ML_OPSET = 3
"""Of ai.onnx.ml, at most: the newest that all converters write."""
NEWEST = 21
COMPARED = 512
"""Rows on which the graph is compared with the model."""
LIMIT = replace(EXPORT, agreement=0.99)
"""Where two classes are equally likely, rounding decides."""
CLASSIFICATION = "tabular-classification"
REGRESSION = "tabular-regression"
_OTHERS = ("rank:", "survival:")
LABEL, PROBABILITIES, PREDICTION = "label", "probabilities", "prediction"


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Convert the model, and compare."""
    opset = int(job.params["opset"])
    if opset > NEWEST:
        raise export_error(f"tabular models have opsets up to {NEWEST}, not {opset}", "lower it")
    job.progress("getting the model's file")
    file = files.fetch(job, temp)
    job.progress("loading the model")
    model = load_original(file, job.params["task"])
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


@dataclass(frozen=True, slots=True)
class Original:
    """A fitted estimator."""

    estimator: Any
    library: str
    """`scikit-learn` or `xgboost`."""
    features: int
    names: Sequence[str] = ()
    """Of the features, where the model knows them."""
    classes: Sequence[Any] = ()
    """Of a classifier; a regressor has none."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names that the outputs of its graph get."""
        return (LABEL, PROBABILITIES) if self.classes else (PREDICTION,)

    def predict(self, rows: Any) -> dict[str, Any]:
        """What the library itself computes, under the names of the outputs."""
        import numpy as np

        hint = "it has to take rows of numbers; was it saved with another scikit-learn?"
        with warnings.catch_warnings(), failing(export_error, "the model cannot predict", hint):
            warnings.simplefilter("ignore")  # rows have no names of features
            found = np.asarray(self.estimator.predict(rows))
            if not self.classes:
                return {PREDICTION: found.astype(np.float32).reshape(len(rows), -1)}
            if not hasattr(self.estimator, "predict_proba"):
                return {LABEL: found}
            shares = np.asarray(self.estimator.predict_proba(rows), dtype=np.float32)
        return {LABEL: found, PROBABILITIES: shares}


def load_original(file: Path, task: str) -> Original:
    """The model in a file, for a task. Raises `StageError`."""
    files.check_suffix(file.name)
    found = _of_skops(file) if file.suffix.lower() == files.SKOPS else _of_xgboost(file)
    kind = CLASSIFICATION if found.classes else REGRESSION
    if task != kind:
        raise export_error(f"{file.name} is for {kind}, not for {task}", f'task = "{kind}"')
    return found


def _of_skops(file: Path) -> Original:
    from sklearn.base import is_classifier, is_regressor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of another version; what it computes is compared
        model = trusted.load(file)
    if not (is_classifier(model) or is_regressor(model)):
        text = f"{file.name} holds a {type(model).__name__}, neither a classifier nor a regressor"
        raise unsupported(text, "save the whole pipeline including its last step")
    features = getattr(model, "n_features_in_", None)
    if not isinstance(features, int) or features < 1:
        raise export_error(
            f"{file.name} contains a model that is not fitted", "fit it, then save it"
        )
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    classes = getattr(model, "classes_", None) if is_classifier(model) else ()
    return Original(model, "scikit-learn", features, names, _plain(classes, file))


def _plain(classes: Any, file: Path) -> list[Any]:
    """Labels for a manifest. Raises `StageError` for several columns of them."""
    import numpy as np

    if classes is None or any(np.ndim(one) for one in classes):
        raise unsupported(
            f"{file.name} predicts several label columns", "only one column is supported"
        )
    return [one.item() if isinstance(one, np.generic) else str(one) for one in classes]


def _of_xgboost(file: Path) -> Original:
    try:
        import xgboost
    except ModuleNotFoundError as error:
        raise unsupported(
            f"{file.name} needs {error.name}, which is not installed", install("tabular")
        ) from error
    booster = xgboost.Booster()
    what, hint = f"{file.name} is not a model of XGBoost", "save it with save_model (.json, .ubj)"
    with failing(export_error, what, hint, xgboost.core.XGBoostError, ValueError, KeyError):
        booster.load_model(file)
        learner = json.loads(booster.save_config())["learner"]
    count = _classes(learner, file)
    model = xgboost.XGBClassifier() if count else xgboost.XGBRegressor()
    model.load_model(file)
    model.set_params(n_jobs=1)
    names = [str(name) for name in booster.feature_names or ()]
    model.get_booster().feature_names = None  # rows are given, and converted, by column number
    return Original(model, "xgboost", booster.num_features(), names, list(range(count)))


def _classes(learner: Mapping[str, Any], file: Path) -> int:
    """The number of classes of a classifier; 0 for a regressor."""
    objective, booster = learner["objective"]["name"], learner["gradient_booster"]["name"]
    for what, wrong in ((booster, booster != "gbtree"), (objective, objective.startswith(_OTHERS))):
        if wrong:
            text = f"{file.name} is a model of {what}, which onnxmltools does not convert"
            raise unsupported(
                text, "train it with the booster gbtree, for classification or regression"
            )
    if int(learner["learner_model_param"].get("num_target", 1)) > 1:
        raise unsupported(f"{file.name} predicts several targets", "only one target is supported")
    if objective in {"multi:softprob", "multi:softmax"}:
        return int(learner["learner_model_param"]["num_class"])
    return 2 if objective in {"binary:logistic", "binary:logitraw"} else 0
