"""Shapes: from arrays and runs, from a model's configuration, from its preprocessor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engines import graphs
from tests.engines.graphs import ROWS, outputs
from workers.optimum_engine.architectures import shapes
from workers.runtimes import optimize


def test_shapes_come_from_arrays_and_runs() -> None:
    model = graphs.matmul()
    assert optimize.dynamic(model) == ["x", "y"]
    optimize.fix_inputs(model, {"x": ROWS})
    assert optimize.dynamic(model) == ["y"]
    optimize.fix_outputs(model, {"y": outputs(model)})
    assert not optimize.dynamic(model)
    dims = model.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 256]


@pytest.mark.parametrize(
    ("config", "padded", "length"),
    [
        ({}, False, 128),
        ({"max_position_embeddings": 512}, False, 128),
        ({"max_position_embeddings": 514}, False, 128),
        ({"max_position_embeddings": 64}, False, 32),
        ({"n_positions": 1024}, False, 128),
        ({"text_config": SimpleNamespace(max_position_embeddings=77)}, True, 77),
        ({"max_position_embeddings": -1}, False, 128),
        ({"max_target_positions": 64, "max_position_embeddings": 512}, False, 32),
        ({"decoder": SimpleNamespace(n_positions=64)}, False, 32),
    ],
)
def test_texts_fit_the_model(
    config: dict[str, Any], padded: bool, length: int, tmp_path: Path
) -> None:
    made = shapes.base_shapes(SimpleNamespace(**config), tmp_path, {}, padded=padded)
    assert made == {"batch_size": 1, "sequence_length": length}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"size": 384}', (384, 384)),
        (
            '{"crop_size": {"height": 224, "width": 200}, "size": {"shortest_edge": 256}}',
            (224, 200),
        ),
        ('{"size": {"shortest_edge": 256}, "do_center_crop": false, "crop_size": 224}', (256, 256)),
        ('{"size": {"longest_edge": 1333}}', None),
        ("{", None),
    ],
)
def test_images_have_the_size_of_the_preprocessor(
    text: str, size: tuple[int, int] | None, tmp_path: Path
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text, encoding="utf-8")
    made = shapes.base_shapes(SimpleNamespace(), tmp_path, {"batch_size": 4})
    assert made["batch_size"] == 4
    assert (made.get("height"), made.get("width")) == (size or (None, None))
