"""Nothing is optimized or analyzed twice, and nothing of another model is ever handed out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from workers.winml_engine import optimize
from workers.winml_engine.optimize import KEPT, Analysis, Cache, model_digest


class Tools:
    """winml-cli's optimizer and analyzer, counting."""

    def __init__(self) -> None:
        self.transformed: list[Any] = []
        self.analyzed: list[Any] = []

    def transform(self, graph: Path, target: Path, flags: Mapping[str, Any] | None) -> None:
        self.transformed.append(flags)
        names = ",".join(sorted(flags)) if flags else ""
        done = graph.read_text().partition("|")
        target.write_text(f"{done[0]}|{names or done[2]}")

    def analyze(self, graph: Path, rules: str | None) -> Analysis:
        self.analyzed.append((graph.read_text(), rules))
        return Analysis({}, (), (), 0)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    found = Tools()
    monkeypatch.setattr(optimize, "transform", found.transform)
    monkeypatch.setattr(optimize, "analyze", found.analyze)
    return found


@pytest.fixture
def caches(tmp_path: Path) -> Cache:
    (tmp_path / "home").mkdir()
    return Cache(tmp_path / "home")


def export(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "model.onnx"
    file.write_text(text)
    return file


def test_equal_work_is_done_once(tools: Tools, caches: Cache, tmp_path: Path) -> None:
    file = export(tmp_path, "a")
    for _target in range(3):
        cached = caches.of(file)
        graph = cached.optimized(cached.optimized(file, {"clamp": True}), {"gelu": True})
        cached.analysis(graph, "QNN_NPU")
    assert tools.transformed == [{"clamp": True}, {"gelu": True}]
    assert tools.analyzed == [("a|gelu", "QNN_NPU")]


def test_other_flags_rules_or_bytes_are_other_work(
    tools: Tools, caches: Cache, tmp_path: Path
) -> None:
    cached = caches.of(export(tmp_path, "a"))
    start = cached.optimized(tmp_path / "model.onnx", {})
    assert cached.optimized(start, {"gelu": True}) != cached.optimized(start, {"layer": True})
    cached.analysis(start, "QNN_NPU")
    cached.analysis(start, None)
    assert len(tools.analyzed) == 2
    other = caches.of(export(tmp_path, "b"))
    assert other.optimized(tmp_path / "model.onnx", {}).read_text().startswith("b|")


def test_the_same_bytes_are_one_graph_whatever_made_them(
    tools: Tools, caches: Cache, tmp_path: Path
) -> None:
    cached = caches.of(export(tmp_path, "a"))
    start = cached.optimized(tmp_path / "model.onnx", None)
    same = cached.optimized(start, {})
    assert start.read_text() == same.read_text()
    cached.analysis(start, None)
    cached.analysis(same, None)
    assert len(tools.analyzed) == 1
    assert tools.transformed == [None, {}]


def test_components_do_not_push_each_other_out(tools: Tools, caches: Cache, tmp_path: Path) -> None:
    for _target in range(2):
        for component in ("decoder", "encoder"):
            caches.of(export(tmp_path, component)).optimized(tmp_path / "model.onnx", {})
    assert len(tools.transformed) == 2


def test_old_models_are_removed_from_the_disk(tools: Tools, caches: Cache, tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        caches.of(export(tmp_path, str(number))).optimized(tmp_path / "model.onnx", {})
        assert len(list((tmp_path / "home").iterdir())) <= KEPT
    assert len(tools.transformed) == KEPT + 3


def test_a_folder_that_somebody_cleaned_is_made_anew(
    tools: Tools, caches: Cache, tmp_path: Path
) -> None:
    file = export(tmp_path, "a")
    first = caches.of(file)
    first.optimized(file, {})
    first.folder.rename(tmp_path / "gone")
    assert caches.of(file).optimized(file, {}).is_file()
    assert len(tools.transformed) == 2


def test_weights_beside_the_graph_are_part_of_it(tmp_path: Path) -> None:
    file = export(tmp_path, "a")
    alone = model_digest(file)
    (tmp_path / "model.onnx.data").write_bytes(b"weights")
    assert model_digest(file) != alone


def test_a_failed_optimization_is_not_cached(
    tools: Tools, caches: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError("no")

    cached = caches.of(export(tmp_path, "a"))
    with monkeypatch.context() as patch:
        patch.setattr(optimize, "transform", fail)
        with pytest.raises(RuntimeError):
            cached.optimized(tmp_path / "model.onnx", {})
    assert cached.optimized(tmp_path / "model.onnx", {}).is_file()
    assert tools.transformed == [{}]


def test_the_analyzer_sets_nothing_that_is_switched_off() -> None:
    found = Analysis({"gelu_fusion": True, "conv_bn_fusion": True}, ("Foo",), (), 1)
    assert found.without(["gelu_fusion"]) == Analysis({"conv_bn_fusion": True}, ("Foo",), (), 1)
    assert found.without([]) == found
