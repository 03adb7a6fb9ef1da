"""Files of processors in the folder of a model, whatever somebody has put there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from workers.samples.processors import _beside

NAMES = ("processor_config.json", "preprocessor_config.json")


@pytest.mark.parametrize("first", ["", "[]", "[1]", '"size"', "3", "[" * 100_000, '{"a": [1]}'])
def test_the_first_that_has_a_key_is_found_behind_what_is_none(tmp_path: Path, first: str) -> None:
    (tmp_path / NAMES[0]).write_text(first, "utf-8")
    assert _beside(tmp_path, NAMES, "size") == ""
    (tmp_path / NAMES[1]).write_text(json.dumps({"image_processor": {"size": 8}}), "utf-8")
    assert _beside(tmp_path, NAMES, "size") == NAMES[1]
    assert _beside(tmp_path, NAMES) == NAMES[0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX's")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAMES[0])
    assert _beside(tmp_path, NAMES, "size") == _beside(tmp_path, NAMES) == ""
