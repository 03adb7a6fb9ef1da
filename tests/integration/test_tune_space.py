"""Hypotheses on a demo model: what they share is built once, and equal models are recognized."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flows.tune.insight import Insight, graph_insight, graphs_of
from flows.tune.ordering import Situation, ordered
from matrix.hypotheses import Hypothesis
from matrix.model import Cell
from matrix.overlay import combined, overlay, trial_digest
from matrix.space import read_space, shipped
from tests.engines.hosted import SharedHost
from tests.engines.optimum import builder, plan_catalog
from workers.build.builder import Builder
from workers.runtimes.pool import Runtimes
from workers.sources import model_file, onnx_graph

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CATALOG = """
[[model]]
id = "tiny/resnet"
task = "image-classification"
[model.random]
architecture = "resnet"
[model.random.config]
embedding_size = 8
hidden_sizes = [8, 8]
depths = [1, 1]
layer_type = "basic"
num_channels = 3
"""


@dataclass
class Trials:
    """Builds of one model, and what was run for them."""

    maker: Builder
    runtimes: Runtimes
    cells: dict[str, Cell]
    root: Path
    runs: list[str] = field(default_factory=list)

    def build(self, cell: Cell, hypothesis: Hypothesis | None = None) -> tuple[str, set[str]]:
        """The digest of what would be measured, and the operators of its graph."""
        self.maker.begin_model()
        cell = overlay(cell, hypothesis) if hypothesis else cell
        built = self.maker.build(cell)
        self.runs += [run.stage for run in built.stages if not run.reused]
        runtime = hypothesis.runtime if hypothesis else {}
        digest = trial_digest((file.entry for file in built.files), runtime)
        operators = set(onnx_graph.operators(model_file.load(built.folder / model_file.MODEL)))
        built.release()
        return digest, operators

    def insight(self, cell: Cell) -> Insight:
        built = self.maker.build(cell)
        try:
            return graph_insight(self.runtimes.checker, graphs_of(built, self.root / "export"))
        finally:
            built.release()


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory, optimum: SharedHost) -> Iterator[Trials]:
    root = tmp_path_factory.mktemp("space")
    (root / "catalog.toml").write_text(CATALOG, "utf-8")
    cells = {cell.target.label: cell for cell in plan_catalog("catalog.toml", root).cells()}
    runtimes = Runtimes(root / "logs")
    with builder(root, optimum) as maker:
        yield Trials(maker, runtimes, cells, root)
    runtimes.close()


def a_hypothesis(**changes: object) -> Hypothesis:
    values = {"id": "h", "title": "h", "targets": ("*",), "axis": "pass", **changes}
    return Hypothesis(**values)  # type: ignore[arg-type]  # each test gives fields of its own


def test_trials_share_their_export_and_equal_models_are_recognized(trials: Trials) -> None:
    cell = trials.cells["ov_cpu"]
    baseline, operators = trials.build(cell)
    assert operators >= {"Conv", "Relu"}
    idle, _ = trials.build(cell, a_hypothesis(build={"passes": ["BiasGeluFusion"]}))
    assert idle == baseline
    fused, found = trials.build(cell, a_hypothesis(build={"passes": ["ConvActivationFusion"]}))
    assert fused != baseline
    assert "com.microsoft:FusedConv" in found
    opened, _ = trials.build(cell, a_hypothesis(runtime={"NUM_STREAMS": "1"}))
    assert opened != baseline
    assert trials.runs.count("export") == 1
    newer, _ = trials.build(cell, a_hypothesis(opset=19))
    assert newer != baseline
    assert trials.runs.count("export") == 2
    both = combined([
        a_hypothesis(id="a", opset=19),
        a_hypothesis(id="b", build={"passes": ["ConvActivationFusion"]}),
    ]).hypothesis  # fmt: skip
    assert both is not None
    joined, found = trials.build(cell, both)
    assert joined not in {baseline, fused, newer}
    assert "com.microsoft:FusedConv" in found
    assert trials.runs.count("export") == 2


def test_the_facts_of_the_export_guard_what_is_tried(trials: Trials) -> None:
    insight = trials.insight(trials.cells["qnn_npu"])
    assert insight.available
    assert insight.share("Conv")
    assert insight.candidate("conv_activation")
    about = Situation(cell=trials.cells["qnn_npu"], engine="optimum", insight=insight)
    placed = {one.hypothesis.id: one for one in ordered(read_space(shipped()), about)}
    assert not placed["npu-no-conv-fusions"].skipped
    assert placed["npu-attention-21"].why.startswith("the graph has no place for it")


def test_a_file_that_is_no_model_gives_a_reason(trials: Trials, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"rubbish")
    found = graph_insight(trials.runtimes.checker, {"": tmp_path / "model.onnx"})
    assert not found.available
    assert found.reason
    assert "\n" not in found.reason
    again = graph_insight(trials.runtimes.checker, {"": tmp_path / "none.onnx"})
    assert not again.available
    assert again.reason
