"""ONNX Runtime opens the model packages that `feed pull --as ort-package` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.feeds.variants import Sweep
from tests.verification.ort_model_package import opened


def test_onnx_runtime_finds_all_variants_in_order_and_chooses_for_the_cpu(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sources")
    parts = ("encoder", "decoder")
    for right in ("mlas_cpu", "qnn_npu", "qnn_npu+htp73"):
        sweep.cell(right, components=parts)
    made = sweep.pull(tmp_path / "out")
    found = opened(made.dest)
    assert list(found) == ["encoder", "decoder"]
    for component in found.values():
        assert [name for name, _ in component["variants"]] == list(made.variants)
        assert component["variants"][0] == ["qnn_npu+htp73", "QNNExecutionProvider"]
        assert component["cpu"] == "mlas_cpu"


def test_onnx_runtime_refuses_what_the_schema_refuses(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sources")
    sweep.cell("mlas_cpu")
    made = sweep.pull(tmp_path / "out")
    file = made.dest / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "more": 1}))
    with pytest.raises(AssertionError, match="unknown field 'more'"):
        opened(made.dest)
