"""Input values for a graph that comes without any."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.runtimes.values import Misfit, made
from workers.session import Port

PIXELS = Port("pixel_values", "float32", ("batch", "channels", "height", "width"))
TEXT = Port("input_ids", "int64", ("batch", "sequence"))
MASK = Port("attention_mask", "int64", ("batch", "sequence"))


def shapes(folder: Path, *ports: Port, **given: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    found = made(ports, 0, given, folder)
    return {name: value.shape for name, value in found.items()}


def configured(folder: Path, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def test_open_dimensions_get_usual_sizes(tmp_path: Path) -> None:
    assert shapes(tmp_path, PIXELS, TEXT) == {
        "pixel_values": (1, 3, 224, 224),
        "input_ids": (1, 128),
    }


def test_the_configuration_beside_the_model_knows_better(tmp_path: Path) -> None:
    folder = configured(tmp_path, image_size=64, num_channels=1, max_position_embeddings=32)
    assert shapes(folder, PIXELS, TEXT) == {"pixel_values": (1, 1, 64, 64), "input_ids": (1, 32)}
    nested = configured(tmp_path, vision_config={"image_size": 48})
    assert shapes(nested, PIXELS) == {"pixel_values": (1, 3, 48, 48)}


def test_what_the_user_gives_counts(tmp_path: Path) -> None:
    folder = configured(tmp_path, image_size=64)
    assert shapes(folder, PIXELS, pixel_values=(2, 3, 96, 32)) == {"pixel_values": (2, 3, 96, 32)}


def test_values_are_those_of_samples(tmp_path: Path) -> None:
    folder = configured(tmp_path, vocab_size=50)
    found = made([TEXT, MASK], 1, {}, folder)
    assert found["input_ids"].max() < 50
    assert set(np.unique(found["attention_mask"])) == {0, 1}, "a part is hidden in odd samples"


@pytest.mark.parametrize("text", ["", "[1]", "{" * 100_000, '{"image_size": -4}', '"image_size"'])
def test_a_configuration_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, "utf-8")
    assert shapes(tmp_path, PIXELS) == {"pixel_values": (1, 3, 224, 224)}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes in folders")
def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert shapes(tmp_path, PIXELS) == {"pixel_values": (1, 3, 224, 224)}


def test_inputs_that_no_values_can_be_made_for_are_told(tmp_path: Path) -> None:
    with pytest.raises(Misfit, match=r"'text'.*--inputs"):
        made([Port("text", "str", ("batch",))], 0, {}, tmp_path)
