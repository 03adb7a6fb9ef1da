"""Skops files that name what is not trusted are refused before skops reads them."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from matrix.status import FailureClass
from tests.engines.tabular import node, skops_file
from workers.engine import StageError
from workers.tabular_engine import trusted

TREE = "sklearn.tree._classes.DecisionTreeClassifier"
FUNCTION = {"module_path": "os", "function": "system"}


@pytest.fixture(autouse=True)
def _skops_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skops.io", None)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (node("os.system", "FunctionNode", content=FUNCTION), "os.system"),
        (node("posix.system", "TypeNode"), "posix.system"),
        (node("builtins.eval", "TypeNode"), "builtins.eval"),
        (node("functools.partial", "PartialNode"), "functools.partial"),
        (node("mine.Estimator"), "mine.Estimator"),
        (node(TREE, "MethodNode", content={"func": "fit", "obj": {}}), TREE),
        (node(TREE, "OperatorFuncNode"), TREE),
        (node("numpy.ndarray"), "numpy.ndarray"),
        ({"__class__": "Popen", "__module__": "subprocess"}, "subprocess.Popen"),
        ({"__loader__": "MethodNode"}, "None.None"),
        (node("sklearn.svm._classes.SVC"), "sklearn.svm._classes.SVC"),
    ],
)
def test_types_and_loaders_that_are_not_in_the_list(
    tmp_path: Path, bad: dict[str, Any], named: str
) -> None:
    inside = node(TREE, content=node("builtins.dict", "DictNode", content={"deep": [bad]}))
    for nodes in ([bad], [inside]):
        file = skops_file(tmp_path / "model.skops", *nodes)
        with pytest.raises(StageError) as caught:
            trusted.load(file)
        assert caught.value.failure == FailureClass.UNSUPPORTED
        assert caught.value.args[0] == (
            f"model.skops holds a {named}, which is not in the list of trusted types"
        )


def test_what_is_no_skops_file(tmp_path: Path) -> None:
    file = tmp_path / "model.skops"
    for raw in (b"", b"\x80\x04pickle", b"PK\x03\x04"):
        file.write_bytes(raw)
        with pytest.raises(StageError, match=r"model\.skops is not a skops file"):
            trusted.load(file)
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("other.json", "{}")
    with pytest.raises(StageError, match="is not a skops file"):
        trusted.load(file)
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("schema.json", "[" * 100_000)
    with pytest.raises(StageError, match="is not a skops file"):
        trusted.load(file)


def test_a_file_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted, "LARGEST", 10)
    with pytest.raises(StageError, match="is larger than"):
        trusted.load(skops_file(tmp_path / "model.skops"))
