"""The export stage: a source becomes ONNX graphs, fp32, with dynamic axes, once per model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matrix.model import SourceKind
from workers import composition
from workers.engine import StageJob
from workers.optimum_engine import (
    components,
    decoders,
    generated,
    inputs,
    opsets,
    originals,
    tracing,
    transposed,
)
from workers.optimum_engine.architectures import rows
from workers.optimum_engine.shared_weights import SharedWeights, side_by_side
from workers.sources import checkpoint, compared, load, model_file, onnx_graph, source
from workers.sources import ready_files as ready
from workers.sources.checkpoint import Checkpoint
from workers.sources.errors import export_error
from workers.sources.load import exporter_task


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Export every graph of the model, or use a ready ONNX file."""
    if "file" in job.params:
        return ready.take(job, source_folder(job, temp) or temp)
    opset = int(job.params["opset"])
    opsets.check(opset)
    task = exporter_task(job.params["task"])
    job.progress("getting the model's files")
    folder = source_folder(job, temp)
    job.progress("loading the model")
    model, loaded = load.load(job.request, folder, task)
    _side_files(model, folder, job.out)
    exporter = _exporter(model.config.model_type, job.params)
    parts = components.parts(model, task, folder)
    weights_of = _weights(job, model, loaded, parts)
    weights = SharedWeights(job.out) if decoders.generates(task) else None
    facts: dict[str, Any] = {}
    ports: dict[str, composition.Ports] = {}
    for number, (name, (module, config)) in enumerate(parts.items(), 1):
        job.progress(f"exporting {name} {number}/{len(parts)}" if name else "exporting")
        raw = temp / "raw"
        raw.mkdir()
        tracing.export_graph(
            module, config, raw / model_file.MODEL, min(opset, opsets.EXPORTER), exporter
        )
        graph = model_file.load_graph(raw)
        transposed.fold(graph, raw)
        if hasattr(config, "open_outputs"):
            config.open_outputs(graph)
        opsets.declare(graph, opset)
        facts[name or "."] = onnx_graph.facts(graph)
        ports[name] = onnx_graph.ports(graph)
        if weights is None:
            model_file.save(graph, job.out / name, raw)
        else:
            weights.add(graph, name, raw)
        shutil.rmtree(raw)
    if len(parts) > 1:
        joins, loop = components.joins(model, task), decoders.loop_of(parts)
        record = composition.compose(ports, model_file.MODEL, joins, loop)
        composition.write(side_by_side(record) if weights else record, job.out)
        taken = {name: names for name, (names, _outputs) in ports.items()}
        example = partial(inputs.example, parts, job.out, task, model.config)
        generated.write(model, record, taken, example, job.out)
        del example
    model_type, names = model.config.model_type, [name for name in parts if name]
    left = dict(parts)
    del model, parts, module, config  # only `left` has them
    compared_facts, figures = originals.compare(job, left, model_type, temp)
    return {
        **compared.noticed(weights_of, compared_facts),
        "compared": compared_facts,
        "figures": figures,
        "components": names,
        "precision": "fp32",
        "task": task,
        "model_type": model_type,
        "weights": weights_of,
        "graphs": facts,
    }


def _weights(
    job: StageJob, model: Any, loaded: Checkpoint | None, parts: components.Parts
) -> dict[str, Any]:
    """Where the weights come from, for the facts."""
    if loaded is None:
        return {"from_source": 0.0, "seed": int(job.request.model["source"].get("seed") or 0)}
    run = partial(tracing.outputs, parts.values())
    return checkpoint.settle(model, loaded, run, new_head=bool(job.params.get("new_head")))


def source_folder(job: StageJob, temp: Path) -> Path | None:
    kind = SourceKind(job.request.model["source"]["kind"])
    if kind is SourceKind.RANDOM:
        return None
    folder = source.folder_of(job.request, job.params.get("commit"), temp)
    if kind is SourceKind.FOLDER and source.resolve(job.request).digest != job.params["source"]:
        raise export_error(
            f"{folder}: the files changed since they were planned",
            "run the sweep again when nothing writes there",
        )
    return folder


def _side_files(model: Any, folder: Path | None, out: Path) -> None:
    if folder is not None:
        model_file.copy_side_files(folder, out)
        return
    text = model.config.to_json_string(use_diff=True)
    (out / "config.json").write_text(text, encoding="utf-8", newline="\n")


def _exporter(architecture: str, params: Mapping[str, Any]) -> str:
    """The exporter that is in the key. Raises `StageError` if the key is another family's."""
    exporter = rows.exporter(architecture)
    missing = set(rows.versions(architecture)) - set(params.get("extensions", ()))
    if exporter != params.get("exporter", rows.TORCHSCRIPT) or missing:
        raise export_error(
            f"its config says model_type {architecture}, the catalog another one",
            f'set model_type = "{architecture}" in the catalog',
        )
    return exporter
