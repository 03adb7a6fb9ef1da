"""Ready ONNX files: the stage that replaces the export, and the files that belong to one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.engine import StageJob
from workers.sources import model_file, onnx_graph
from workers.sources.errors import export_error, failing
from workers.sources.links import own_file
from workers.sources.weights import SIDE_FILES, matching

OLDEST = 13
"""The oldest opset that targets take; older files are converted to the cell's opset."""


def take(job: StageJob, folder: Path) -> Mapping[str, Any]:
    """Use the file as the model's export: written again as every stage writes models."""
    name = str(job.params["file"])
    job.progress(f"reading {name}")
    model = _read(own_file(folder, name))
    found = onnx_graph.opset(model)
    if found < OLDEST:
        model = _converted(model_file.load(folder / name), int(job.params["opset"]), name)
    lower_ir(model)
    model_file.save(model, job.out, (folder / name).parent)
    for side in side_files(folder):
        shutil.copyfile(own_file(folder, side), job.out / side)
    facts = {
        "file": name,
        "file_opset": found,
        "precision": _precision(model),
        "compared": {"not": "a ready ONNX file is its own source"},
    }
    return {**facts, "components": [], "graphs": {".": onnx_graph.facts(model)}}


def parts_of(folder: Path, name: str) -> list[str]:
    """The file, the files with its weights, and the small files of its folder."""
    model = _read(own_file(folder, name))
    place = Path(name).parent
    outside = sorted({(place / part).as_posix() for part in _external(model)})
    for part in outside:
        if not own_file(folder, part).is_file():
            raise export_error(f"{name}: its weights in {part} are missing", "add that file")
    return [name, *outside, *side_files(folder)]


def external_of(file: Path) -> list[str]:
    """The files beside an ONNX file that hold its weights."""
    return sorted(_external(_read(file)))


def side_files(folder: Path) -> list[str]:
    """The small files of a model at the top of a folder, which may hold anything else."""
    return matching((item.name for item in folder.iterdir() if item.is_file()), SIDE_FILES)


def _read(file: Path) -> Any:
    """The graph without its weights. Raises `StageError` if the file is not a model."""
    with (
        failing(export_error, f"{file.name} is not an ONNX model", "", Exception),
        failing(export_error, f"{file.name} cannot be read", "", OSError),
    ):
        model = onnx_graph.load(file)
    if not model.graph.node or not model.opset_import:
        raise export_error(
            f"{file.name} is not an ONNX model: it has no nodes", "is the file complete?"
        )
    if not any(item.domain in onnx_graph.STANDARD for item in model.opset_import):
        raise export_error(f"{file.name} uses no standard ONNX operators")
    return model


def _external(model: Any) -> set[str]:
    """The files that hold external weights; only files in the same folder are accepted."""
    for node in onnx_graph.nodes(model):
        if onnx_graph.is_context(node):
            raise export_error(f"node {node.name} is a compiled context, which is not built again")
    found = map(onnx_graph.beside, onnx_graph.all_tensors(model))
    return {where.location for where in found if where}


def _converted(model: Any, opset: int, name: str) -> Any:
    from onnx import version_converter

    what = f"{name} has opset {onnx_graph.opset(model)} and cannot be converted to {opset}"
    hint = f"export it again with opset {OLDEST} or later"
    with failing(export_error, what, hint, Exception):
        return version_converter.convert_version(model, opset)


def lower_ir(model: Any) -> None:
    """Set the IR version released with the opset: older runtimes refuse newer IR versions."""
    from onnx import helper

    enough = helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    model.ir_version = min(model.ir_version, max(enough, 8))


def _precision(model: Any) -> str:
    """The precision of the file; a quantized file is not quantized again."""
    import onnx

    if onnx_graph.quantized(model):
        return "quantized"
    half = onnx.TensorProto.FLOAT16
    return "fp16" if any(t.data_type == half for t in model.graph.initializer) else "fp32"
