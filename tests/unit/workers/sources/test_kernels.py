"""No configuration starts code of the Hub without consent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engines.sources import folder_source, make_request, write_model
from workers.engine import StageError
from workers.sources import load, source

KERNELS: list[dict[str, Any]] = [
    {"_attn_implementation": "x/y"},
    {"attn_implementation": "x/y@main:z"},
    {"vision_config": {"_attn_implementation_internal": "x/y"}},
    {"_attn_implementation": {"": "eager", "vision": "x/y"}},
    {"parts": [{"_attn_implementation": "x/y"}]},
    {"use_kernels": True},
]


@pytest.mark.parametrize("more", KERNELS, ids=str)
def test_kernels_of_the_hub_are_refused_without_consent(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    folder = write_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_bytes())
    assert source.folder_of(make_request(folder_source(folder)), None, tmp_path) == folder
    (folder / "config.json").write_text(json.dumps({**config, **more}), encoding="utf-8")
    request = make_request(folder_source(folder))
    with pytest.raises(StageError, match="takes kernels from the Hub") as raised:
        source.folder_of(request, None, tmp_path)
    assert "remote_code" in raised.value.hint
    allowed = make_request(folder_source(folder), allow={"remote_code": True})
    assert source.folder_of(allowed, None, tmp_path) == folder


def test_the_config_of_a_catalog_is_looked_at_too() -> None:
    with pytest.raises(StageError, match="takes kernels from the Hub"):
        load._random({"ref": "bert", "config": KERNELS[2]}, "text-classification")
