"""What a context model refers to; runs in the checker's process, which has onnx."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from workers.engine import StageError
from workers.sources.links import own_file
from workers.sources.onnx_graph import attributes, is_context
from workers.sources.onnx_graph import nodes as every_node

COMPATIBILITY = "ep_compatibility_info."


def read_contexts(model: Any, folder: Path, name: str) -> dict[str, Any]:
    """The EPContext nodes of a model, the binaries they name, and what is wrong with those."""
    nodes = [_node(node) for node in every_node(model) if is_context(node)]
    problems: list[str] = []
    binaries: list[str] = []
    for node in nodes:
        if node["embedded"] or (not node["main"] and not node["binary"]):
            continue
        problem = _problem(folder, (folder / name).parent, node["binary"])
        if problem:
            problems.append(f"context {node['partition'] or node['name']}: {problem}")
        else:
            path = (folder / name).parent / node["binary"]
            binaries.append(path.relative_to(folder).as_posix())
    return {
        "nodes": [{key: node[key] for key in ("partition", "main", "embedded")} for node in nodes],
        "binaries": list(dict.fromkeys(binaries)),
        "compatibility": {
            item.key.removeprefix(COMPATIBILITY): item.value
            for item in model.metadata_props
            if item.key.startswith(COMPATIBILITY)
        },
        "problems": problems,
    }


def _node(node: Any) -> dict[str, Any]:
    given = attributes(node)
    embedded = bool(given.get("embed_mode", 1))
    return {
        "name": node.name,
        "partition": _text(given.get("partition_name", b"")),
        "main": bool(given.get("main_context", 1)),
        "embedded": embedded,
        "binary": "" if embedded else _text(given.get("ep_cache_context", b"")),
    }


def _text(value: bytes) -> str:
    """Empty for what is not UTF-8: no file is called that."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def _problem(folder: Path, beside: Path, binary: str) -> str:
    """Why a binary cannot be used; empty: it can."""
    if not binary:
        return "it names no binary, or not in UTF-8"
    path = beside / binary
    if leads_out(binary):
        return f"its binary {binary} is outside the package"
    try:
        own_file(folder, path.relative_to(folder).as_posix())
    except StageError as error:
        return f"its binary is outside the package: {error}"
    if not path.is_file():
        return f"its binary {binary} is missing"
    return ""


def leads_out(path: str) -> bool:
    """Whether a relative path leaves its folder, on any system."""
    posix, windows = PurePosixPath(path), PureWindowsPath(path)
    return bool(
        posix.is_absolute() or windows.is_absolute() or windows.drive or ".." in windows.parts
    )
