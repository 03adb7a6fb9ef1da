"""Which stages a tabular cell has, and what is refused before anything is loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import workers.tabular_engine.engine
from machine.installation import install
from matrix.abilities import abilities_of
from matrix.entry import FILES
from matrix.status import FailureClass
from tests.engines.tabular import CPU, request
from workers.engine import BuildPlan, Request, StageError
from workers.tabular_engine import TabularEngine, files


@pytest.fixture(autouse=True)
def _all_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.tabular_engine.engine, "version", lambda _name: "1.0")


def plan(wanted: Request) -> BuildPlan:
    return TabularEngine().plan(wanted)


def refused(wanted: Request) -> StageError:
    with pytest.raises(StageError) as caught:
        plan(wanted)
    assert caught.value.hint
    return caught.value


def test_the_stages_and_their_tools(tmp_path: Path) -> None:
    for name in ("model.skops", "model.json"):
        (tmp_path / name).write_text("{}", "utf-8")
    skops, boosted = (plan(request(tmp_path, name)) for name in ("model.skops", "model.json"))
    assert [one.name for one in skops.stages] == ["export", "inputs", "optimize"]
    assert skops.stages[0].params["file"] == "model.skops"
    assert "xgboost" not in skops.stages[0].tools
    assert "skops" not in boosted.stages[0].tools
    assert skops.source["digest"] != boosted.source["digest"]
    plain = plan(request(tmp_path, "model.skops", optimization="disabled", build={"samples": 3}))
    assert [one.name for one in plain.stages] == ["export", "inputs"]
    assert plain.stages[1].params["parts"][-1] == [0, 3, 8, 16]


def test_a_file_that_is_not_named_is_found_if_it_is_the_only_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", "utf-8")
    (tmp_path / "model.pkl").write_bytes(b"")
    (tmp_path / "trees.ubj").write_bytes(b"")
    assert plan(request(tmp_path)).source["file"] == "trees.ubj"
    (tmp_path / "other.skops").write_bytes(b"")
    assert "has 2 models: other.skops, trees.ubj" in refused(request(tmp_path)).args[0]


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "pytorch_model.bin", "M.PICKLE"])
def test_pickles_are_refused_named_or_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n")
    for wanted in (request(tmp_path), request(tmp_path, name)):
        error = refused(wanted)
        assert error.failure == FailureClass.UNSUPPORTED
        assert f"{name} is a pickle, which can run code" in error.args[0]
        assert "skops.io.dump" in error.hint


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"target": {**CPU, "label": "qnn_npu", "provider": "QNNExecutionProvider"}},
         "qnn_npu cannot run tabular models: trees"),
        ({"precision": "w8a16"}, "builds only fp32, not w8a16"),
        ({"precision": "fp16"}, "builds only fp32, not fp16"),
        ({"shapes": {"width": 4}}, "unknown shape 'width'"),
    ],
)  # fmt: skip
def test_what_it_does_not_build_for(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    (tmp_path / "model.skops").write_bytes(b"")
    assert says in refused(request(tmp_path, "model.skops", **changes)).args[0]


def test_sources_without_a_model(tmp_path: Path) -> None:
    assert "has none of *.skops" in refused(request(tmp_path)).args[0]
    assert "cannot be read" in refused(request(tmp_path / "gone")).args[0]
    assert "cannot be read" in refused(request(tmp_path, "gone.skops")).args[0]
    assert "not model.onnx" in refused(request(tmp_path, "model.onnx")).args[0]


def test_a_missing_library_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trees.ubj").write_bytes(b"")
    (tmp_path / "model.skops").write_bytes(b"")
    without = {"xgboost": "", "onnxmltools": ""}
    monkeypatch.setattr(
        workers.tabular_engine.engine, "version", lambda name: without.get(name, "1.0")
    )
    error = refused(request(tmp_path, "trees.ubj"))
    assert error.args[0] == "this interpreter lacks xgboost, onnxmltools"
    assert error.hint == install("tabular")
    assert plan(request(tmp_path, "model.skops")).stages


def test_the_table_of_abilities_says_what_the_engine_reads() -> None:
    table = abilities_of("tabular")
    assert table
    assert table.files == (files.SKOPS, *files.XGBOOST) == FILES["file"]


def test_planning_imports_no_library(tmp_path: Path) -> None:
    (tmp_path / "model.skops").write_bytes(b"")
    before = set(sys.modules)
    plan(request(tmp_path, "model.skops"))
    heavy = {"sklearn", "skops", "skl2onnx", "xgboost", "onnx", "numpy"}
    assert not heavy & (set(sys.modules) - before)
