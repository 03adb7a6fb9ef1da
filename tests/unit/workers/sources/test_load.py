"""What a configuration that cannot be used says to its user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matrix.status import FailureClass
from workers.engine import StageError
from workers.sources import load


def test_an_architecture_that_nobody_knows_is_no_failure_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "quasarnet"}', encoding="utf-8")
    with pytest.raises(StageError, match="no architecture 'quasarnet'") as raised:
        load.read_config(tmp_path)
    assert raised.value.failure is FailureClass.UNSUPPORTED
    assert "ready ONNX file" in raised.value.hint


@pytest.mark.parametrize("content", ["{", "[]", "", json.dumps({"model_type": 3})])
def test_a_damaged_configuration_is(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(StageError, match=r"config\.json cannot be used") as raised:
        load.read_config(tmp_path)
    assert raised.value.failure is FailureClass.EXPORT
