"""Every stage as the first thing that a host does, as after a resume with all before it cached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from matrix.model import Cell
from tests.engines.fresh_host import FreshHost
from tests.engines.hosted import SharedHost
from tests.engines.onnx_files import convolution
from tests.engines.optimum import plan_catalog
from workers.build.builder import Builder
from workers.host.client import EngineHost
from workers.host.engines import find_engine
from workers.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

BERT = ["text-classification@qnn_npu", "text-classification@mlas_cpu:fp16",
        "text-classification@mlas_cpu:w8"]  # fmt: skip


def build(cells: Sequence[Cell], host: EngineHost, root: Path) -> list[str]:
    """The trees of cells that share a store, and so their export."""
    made = Builder(Store(root / "store"), host, root / "work")
    try:
        return [made.build(cell).tree for cell in cells]
    finally:
        made.close()


def same_in_fresh_hosts(
    cells: Sequence[Cell], root: Path, warm: EngineHost
) -> dict[str, list[str]]:
    """Build cells in a warm host and in fresh ones; what the stages of the latter reported."""
    fresh = FreshHost(find_engine("optimum"), log_dir=root / "fresh-logs")
    assert build(cells, fresh, root / "fresh") == build(cells, warm, root / "warm")
    assert all(texts for texts in fresh.said.values()), fresh.said
    return fresh.said


def cells_of(catalog: str, base: Path, wanted: Sequence[str]) -> list[Cell]:
    plan = plan_catalog(catalog, base, precision=("w8a16", "fp16", "w8", "fp32"))
    by_id = {cell.id: cell for cell in plan.cells()}
    return [by_id[name] for name in wanted]


def test_every_stage_and_precision_works_in_a_fresh_host(
    tmp_path: Path, optimum: SharedHost
) -> None:
    """The second and third cell find the export, the inputs and most else in the store."""
    cells = cells_of("demo", tmp_path, [f"demo/bert-tiny:{tail}" for tail in BERT])
    said = same_in_fresh_hosts(cells, tmp_path, optimum)
    assert set(said) == {"export", "inputs", "optimize", "rewrites", "quantize"}
    assert said["inputs"][-1] == "making inputs 88/88"
    assert "calibrating 64/64" in said["quantize"]
    assert "converting to fp16" in said["quantize"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", ["clip-tiny:zero-shot-image-classification@qnn_npu",
             "t5-tiny:text2text-generation@qnn_npu"],
)  # fmt: skip
def test_every_stage_of_a_composite_works_in_a_fresh_host(
    cell: str, tmp_path: Path, optimum: SharedHost
) -> None:
    said = same_in_fresh_hosts(cells_of("demo", tmp_path, [f"demo/{cell}"]), tmp_path, optimum)
    assert len(said) == 8
    assert [text for text in said["export"] if text.endswith("2/2")]


@pytest.mark.slow
def test_a_cached_export_serves_new_shapes_in_a_fresh_host(tmp_path: Path) -> None:
    """The inputs are the first stage that runs when shapes are added to a catalog."""
    entry = """[[model]]
id = "tiny"
task = "text-classification"
[model.random]
architecture = "bert"
config = { hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 2, vocab_size = 100 }
"""
    catalog = tmp_path / "catalog.toml"
    root = tmp_path / "root"
    for shapes in ("", "[model.target.mlas_cpu]\nshapes = { sequence_length = 16 }\n"):
        catalog.write_text(entry + shapes, encoding="utf-8")
        cells = cells_of("catalog.toml", tmp_path, ["tiny:text-classification@mlas_cpu"])
        host = FreshHost(find_engine("optimum"), log_dir=tmp_path / "logs")
        build(cells, host, root)
        assert ("export" in host.said) == (not shapes)
        assert "inputs" in host.said


@pytest.mark.slow
def test_folders_and_ready_files_work_in_a_fresh_host(tmp_path: Path, optimum: SharedHost) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=100)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "folder")
    convolution(tmp_path / "ready.onnx")
    (tmp_path / "catalog.toml").write_text(
        '[[model]]\nid = "ready"\ntask = "image-classification"\nonnx = "ready.onnx"\n'
        '[[model]]\nid = "folder"\ntask = "text-classification"\nfolder = "folder"\n',
        encoding="utf-8",
    )
    names = ["ready:image-classification@qnn_npu", "folder:text-classification@qnn_npu"]
    said = same_in_fresh_hosts(cells_of("catalog.toml", tmp_path, names), tmp_path, optimum)
    assert set(said) == {"export", "inputs", "optimize", "rewrites", "quantize"}
    assert {"reading ready.onnx", "loading the model", "exporting"} <= set(said["export"])
