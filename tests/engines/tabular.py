"""Requests for the tabular engine, and skops files by hand."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.engines.sources import folder_source, make_request
from workers.engine import Request

CPU = {"label": "mlas_cpu", "ep": "cpu", "device": "cpu", "provider": "CPUExecutionProvider"}


def request(
    folder: Path, file: str | None = None, *, task: str = "tabular-classification", **changes: Any
) -> Request:
    """A request for a model in a folder."""
    target = changes.pop("target", CPU)
    made = make_request({**folder_source(folder), **({"file": file} if file else {})}, **changes)
    return replace(made, model={**made.model, "task": task}, target=target)


def node(name: str, loader: str = "ObjectNode", **more: Any) -> dict[str, Any]:
    """An object as a schema of skops names it."""
    module, _, kind = name.rpartition(".")
    return {"__class__": kind, "__module__": module, "__loader__": loader, **more}


def skops_file(file: Path, *nodes: dict[str, Any]) -> Path:
    """A skops file with these objects in a list."""
    schema = {**node("builtins.list", "ListNode", content=list(nodes)), "protocol": 2}
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("schema.json", json.dumps(schema))
    return file
