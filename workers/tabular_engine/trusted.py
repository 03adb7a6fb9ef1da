"""The types that a skops file may contain.

A file names its types, and loading it instantiates them. So the file is first read as plain JSON
and refused if it names any other type or a loader that calls objects named in the file
(functions, methods, partials). skops then audits it again.

The arrays in a tree contain indices that scikit-learn's own code follows unchecked, so they are
checked here before the first prediction. Models whose native code relies on more unchecked numbers
(boosting by scikit-learn, support vectors, neighbours) are not in the list.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workers.sources.errors import export_error, failing, unsupported

SCHEMA = "schema.json"
LARGEST = 4 * 1024**3
"""Bytes of all members of a file, unpacked."""

_TREE = "sklearn.tree._tree.Tree"
_NAMES: Mapping[str, str] = {
    "builtins": "bool bytes dict float int list set slice str tuple",
    "collections": "OrderedDict",
    "numpy": "bool bool_ dtype float32 float64 int32 int64 ndarray",
    "numpy.random.mtrand": "RandomState",
    "sklearn.calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration",
    "sklearn.compose._column_transformer": "ColumnTransformer _RemainderColsList",
    "sklearn.decomposition._incremental_pca": "IncrementalPCA",
    "sklearn.decomposition._pca": "PCA",
    "sklearn.decomposition._truncated_svd": "TruncatedSVD",
    "sklearn.discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "sklearn.dummy": "DummyClassifier DummyRegressor",
    "sklearn.ensemble._bagging": "BaggingClassifier BaggingRegressor",
    "sklearn.ensemble._forest": "ExtraTreesClassifier ExtraTreesRegressor RandomForestClassifier"
    " RandomForestRegressor",
    "sklearn.ensemble._stacking": "StackingClassifier StackingRegressor",
    "sklearn.ensemble._voting": "VotingClassifier VotingRegressor",
    "sklearn.ensemble._weight_boosting": "AdaBoostClassifier AdaBoostRegressor",
    "sklearn.feature_selection._variance_threshold": "VarianceThreshold",
    "sklearn.impute._base": "SimpleImputer",
    "sklearn.linear_model._base": "LinearRegression",
    "sklearn.linear_model._bayes": "ARDRegression BayesianRidge",
    "sklearn.linear_model._coordinate_descent": "ElasticNet ElasticNetCV Lasso LassoCV",
    "sklearn.linear_model._huber": "HuberRegressor",
    "sklearn.linear_model._least_angle": "Lars LarsCV LassoLars LassoLarsCV LassoLarsIC",
    "sklearn.linear_model._logistic": "LogisticRegression LogisticRegressionCV",
    "sklearn.linear_model._omp": "OrthogonalMatchingPursuit OrthogonalMatchingPursuitCV",
    "sklearn.linear_model._quantile": "QuantileRegressor",
    "sklearn.linear_model._ridge": "Ridge RidgeCV RidgeClassifier RidgeClassifierCV",
    "sklearn.linear_model._sgd_fast": "EpsilonInsensitive Hinge Huber Log ModifiedHuber"
    " SquaredEpsilonInsensitive SquaredHinge SquaredLoss",
    "sklearn._loss._loss": "CyHalfBinomialLoss CyHalfSquaredError CyHuberLoss",
    "sklearn.linear_model._stochastic_gradient": "SGDClassifier SGDRegressor",
    "sklearn.linear_model._theil_sen": "TheilSenRegressor",
    "sklearn.multiclass": "OneVsRestClassifier",
    "sklearn.naive_bayes": "BernoulliNB ComplementNB GaussianNB MultinomialNB",
    "sklearn.neural_network._multilayer_perceptron": "MLPClassifier MLPRegressor",
    "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
    "sklearn.pipeline": "FeatureUnion Pipeline",
    "sklearn.preprocessing._data": "Binarizer MaxAbsScaler MinMaxScaler Normalizer"
    " PowerTransformer QuantileTransformer RobustScaler StandardScaler",
    "sklearn.preprocessing._discretization": "KBinsDiscretizer",
    "sklearn.preprocessing._encoders": "OneHotEncoder OrdinalEncoder",
    "sklearn.preprocessing._label": "LabelBinarizer LabelEncoder",
    "sklearn.preprocessing._polynomial": "PolynomialFeatures",
    "sklearn.svm._classes": "LinearSVC LinearSVR",
    "sklearn.tree._classes": "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier"
    " ExtraTreeRegressor",
    "sklearn.tree._tree": "Tree",
    "sklearn.utils._bunch": "Bunch",
}
TYPES = frozenset(f"{module}.{name}" for module, names in _NAMES.items() for name in names.split())
LOADERS = frozenset(
    {
        "BunchNode", "BytesNode", "CachedNode", "DTypeNode", "DictNode", "JsonNode", "ListNode",
        "LossNode", "NdArrayNode", "ObjectNode", "RandomStateNode", "SetNode", "SliceNode",
        "TreeNode", "TupleNode", "TypeNode",
    }
)  # fmt: skip
"""Of skops: those that make an object of a type, and call nothing that the file names."""


def load(file: Path) -> Any:
    """The object in a skops file. Raises `StageError` unless all of it is trusted."""
    named = set(_types(_schema(file), file))
    import skops.io

    hint = "was it saved with another version of scikit-learn? save it again with this one"
    with failing(export_error, f"{file.name} cannot be loaded", hint):
        model = skops.io.load(file, trusted=sorted(named))
    for tree, features in _trees(model, None, set()):
        if not _sound(tree, features):
            text = f"{file.name} is damaged: a tree in it leads nowhere"
            raise export_error(text, "save the model again where it was trained")
    return model


def _schema(file: Path) -> Any:
    kinds = (OSError, KeyError, ValueError, RecursionError, zipfile.BadZipFile)
    what = f"{file.name} is not a skops file"
    with (
        failing(export_error, what, "save it with skops.io.dump", *kinds),
        zipfile.ZipFile(file) as members,
    ):
        if sum(one.file_size for one in members.infolist()) > LARGEST:
            text = f"{file.name} is larger than {LARGEST >> 30} GiB, unpacked"
            raise export_error(text, "train a smaller model")
        return json.loads(members.read(SCHEMA))


def _types(node: Any, file: Path) -> Iterator[str]:
    """The types that a schema names, all of them trusted."""
    pending = [node]
    while pending:
        match pending.pop():
            case dict() as table:
                if "__class__" in table or "__loader__" in table:
                    yield _type(table, file)
                pending += table.values()
            case list() as rows:
                pending += rows


def _type(table: Mapping[str, Any], file: Path) -> str:
    name = f"{table.get('__module__')}.{table.get('__class__')}"
    loader = table.get("__loader__", "TypeNode")
    # An object's attributes are set one by one, which arrays and the like do not survive.
    plain = loader == "ObjectNode" and not name.startswith("sklearn.")
    if name not in TYPES or loader not in LOADERS or plain:
        raise unsupported(
            f"{file.name} holds a {name}, which is not in the list of trusted types",
            "convert it where it was trained (skl2onnx), and give the ONNX file as onnx",
        )
    return name


def _trees(
    value: Any, features: int | None, seen: set[tuple[int, int | None]]
) -> Iterator[tuple[Any, int]]:
    """Every tree with the number of features that its estimators take."""
    import numpy as np

    if (id(value), features) in seen:
        return
    seen.add((id(value), features))  # estimators of different sizes may share a tree
    inner: Any = ()
    kind = type(value)
    if f"{kind.__module__}.{kind.__name__}" == _TREE:
        yield value, 0 if features is None else features
    elif isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple | set):
        inner = value
    elif isinstance(value, np.ndarray):
        inner = value.ravel().tolist() if value.dtype == object else ()
    elif kind.__module__.startswith("sklearn."):
        own = getattr(value, "__dict__", {})
        known = own.get("n_features_in_")
        if isinstance(known, int):
            features = known if features is None else min(features, known)
        inner = own.values()
    for one in inner:
        yield from _trees(one, features, seen)


def _sound(tree: Any, features: int) -> bool:
    """Whether every node leads to later nodes of the tree, and reads a feature that there is."""
    import numpy as np

    count = tree.node_count
    if not 0 < count <= tree.capacity:
        return False
    leaf = tree.children_left == -1
    numbers = np.arange(count)
    children = (tree.children_left, tree.children_right)
    down = all(((side > numbers) & (side < count))[~leaf].all() for side in children)
    read = tree.feature[~leaf]
    return bool(down and ((read >= 0) & (read < features)).all())
