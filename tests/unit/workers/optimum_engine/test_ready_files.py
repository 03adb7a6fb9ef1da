"""A ready ONNX file is built without PyTorch and Optimum, whose import takes seconds and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.onnx_files import convolution
from tests.engines.sources import make_request
from workers.engine import StageJob
from workers.optimum_engine import OptimumEngine
from workers.optimum_engine.architectures import families
from workers.sources import source


def test_nothing_is_asked_of_optimum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "register", lambda: pytest.fail("Optimum is loaded"))
    (models := tmp_path / "models").mkdir()
    convolution(models / "alone.onnx")
    request = make_request({"kind": "folder", "ref": str(models), "file": "alone.onnx"})
    params = {"file": "alone.onnx", "opset": 17, "source": source.resolve(request).digest}
    (out := tmp_path / "out").mkdir()
    OptimumEngine().run(StageJob("export", params, request, {}, out))
    assert (out / "model.onnx").is_file()
