"""Requests and files by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.model import CHANNELS
from workers.engine import Request

RANDOM = {"kind": "random", "ref": "bert", "revision": None, "seed": 7, "config": {"x": 1}}


def policy(**changes: Any) -> dict[str, Any]:
    """A plain fp32 policy, changed."""
    return {
        "precision": "fp32",
        "opset": 17,
        "optimization": "basic",
        "static_shapes": False,
        "shapes": {},
        "quantizer": "qnn",
        "blocked_passes": [],
        "blocked_ops": [],
        "rewrites": [],
        "channels": list(CHANNELS),
        "accuracy_level": 0,
        **changes,
    }


def make_request(
    source: Mapping[str, Any] = RANDOM, dataset: Any = None, allow: Any = None, **changes: Any
) -> Request:
    """A request for that source and policy."""
    model = {
        "id": "tiny/model",
        "task": "fill-mask",
        "model_type": "bert",
        "source": dict(source),
        "dataset": dataset,
        "allow": allow or {},
    }
    return Request(model, {"label": changes.pop("label", "t")}, policy(**changes))


def write_safetensors(file: Path, size: int = 64) -> Path:
    """A file with one tensor of that many bytes."""
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
        }
    ).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    return file


def write_model(folder: Path) -> Path:
    """A folder that looks like a whole checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    write_safetensors(folder / "model.safetensors")
    return folder


def folder_source(folder: Path) -> dict[str, Any]:
    """The source of a folder."""
    return {"kind": "folder", "ref": str(folder), "revision": None, "seed": 0, "config": {}}
