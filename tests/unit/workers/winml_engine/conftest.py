"""A winml-cli that is installed as far as its metadata and data files go."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from workers.winml_engine import installed

PROVIDERS = {
    "OpenVINOExecutionProvider": {"devices": {"NPU": {"valid": True}, "CPU": {"valid": True}}},
    "QNNExecutionProvider": {"devices": {"NPU": {"valid": True}, "CPU": {"valid": False}}},
    "VitisAIExecutionProvider": {"devices": {"NPU": {"valid": False}}},
}
RULES = {
    "rules": [
        {"match": {"ep": None, "device": None}, "export": {"transformers_attention": "eager"}},
        {
            "match": {"ep": "DmlExecutionProvider", "device": "gpu"},
            "export": {"transformers_attention": "sdpa", "nothing": None},
        },
    ]
}


class Distribution:
    """What `importlib.metadata.distribution` answers."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def locate_file(self, path: str) -> Path:
        return self._root / path


@pytest.fixture
def winml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Installed versions, to be changed by a test."""
    root = tmp_path / "site"
    for path, data in ((installed.PROVIDERS, PROVIDERS), (installed.COMPATIBILITY, RULES)):
        file = root / path
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(data))
    patterns = root / installed.PATTERNS.format("qnn")
    patterns.parent.mkdir(parents=True)
    patterns.write_text("{}")
    versions = {"winml-cli": "0.4.0", "onnxruntime": "1.27.0", "torch": "2.13.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "distribution", lambda _name: Distribution(root))
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))
    monkeypatch.setattr(installed, "calibration", lambda: installed.LOCAL)
    for cached in (installed.rule_data, installed.compatibility, installed._data):
        cached.cache_clear()
    return versions
