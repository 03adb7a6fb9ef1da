"""The trained model and its predictions by its own library."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.sources.errors import export_error, failing, unsupported
from workers.tabular_engine import files, trusted

CLASSIFICATION = "tabular-classification"
REGRESSION = "tabular-regression"
_OTHERS = ("rank:", "survival:")
LABEL, PROBABILITIES, PREDICTION = "label", "probabilities", "prediction"


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


def load(file: Path, task: str) -> Original:
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
        install = "pip install -c constraints.txt 'modelmill[tabular]'"
        raise unsupported(
            f"{file.name} needs {error.name}, which is not installed", install
        ) from error
    booster = xgboost.Booster()
    what, hint = f"{file.name} is no model of XGBoost", "save it with save_model, as .json or .ubj"
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
