"""Optimized graphs are the same bytes on Windows and Linux."""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.engines.onnx_files import convolution
from tests.engines.sources import make_request
from workers.engine import StageJob
from workers.runtimes import optimize


def test_attributes_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("export", "out"):
        (tmp_path / name).mkdir()
    convolution(tmp_path / "export" / "model.onnx")
    params = {"level": "extended", "static_shapes": False}
    inputs = {"export": tmp_path / "export"}
    (temp := tmp_path / "temp").mkdir()
    optimize.run(StageJob("optimize", params, make_request(), inputs, tmp_path / "out"), temp)
    model = onnx.load(tmp_path / "out" / "model.onnx")
    names = [[one.name for one in node.attribute] for node in model.graph.node]
    assert ["activation", "auto_pad", "group", "pads"] in names
    assert names == [sorted(one) for one in names]
