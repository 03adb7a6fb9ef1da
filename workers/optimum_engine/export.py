"""The export stage: a source becomes ONNX graphs, fp32, with dynamic axes, once per model.

Opsets that are newer than the exporter's are declared: from opset 20 to 23, ONNX lets existing
operators take more types and gives `QuantizeLinear` and `DequantizeLinear` more attributes; only
the operators in `CHANGED` compute something else. So the same nodes keep their meaning, and the
opset only affects how later stages and runtimes treat them. A test compares this with the schemas
of ONNX.

A decoder gets the reference for verifying its generation: a prompt, and the tokens that PyTorch
generates for it. PyTorch runs the whole model again for every token, without a cache, so that the
reference cannot share an error in the handling of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from machine.files import remove_tree
from matrix.model import SourceKind
from workers import composition
from workers.composition import Composition
from workers.engine import StageJob
from workers.generation import COUNT, FILE, TOKENS
from workers.optimum_engine import components, decoders, inputs, originals, tracing
from workers.optimum_engine.architectures import rows, shapes
from workers.optimum_engine.shared_weights import SharedWeights, side_by_side
from workers.samples.files import write_arrays
from workers.samples.loops import Ports, prompt_of, words_of
from workers.sources import checkpoint, compared, load, model_file, onnx_graph, source
from workers.sources import ready_files as ready
from workers.sources.checkpoint import Checkpoint
from workers.sources.errors import export_error, one_line
from workers.sources.load import exporter_task

EXPORTER = 20
"""The newest opset of the TorchScript exporter that Optimum uses."""
NEWEST = 23
CHANGED = frozenset({"GroupNormalization"})
LENGTH = 8
"""Tokens of a prompt: fewer than a graph of fixed shapes takes, so that padding is verified too."""
Make = Callable[[str, Mapping[str, int]], dict[str, Any]]
"""Makes example inputs of a component, with these sizes."""


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """Export every graph of the model, or use a ready ONNX file."""
    if "file" in job.params:
        return ready.take(job, source_folder(job, temp) or temp)
    opset = int(job.params["opset"])
    check_opset(opset)
    task = exporter_task(job.params["task"])
    job.progress("getting the model's files")
    folder = source_folder(job, temp)
    job.progress("loading the model")
    model, loaded = load.load(job.request, folder, task)
    if folder is not None:
        model_file.copy_side_files(folder, job.out)
    else:
        text = model.config.to_json_string(use_diff=True)
        (job.out / "config.json").write_text(text, encoding="utf-8", newline="\n")
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
        tracing.export_graph(module, config, raw / model_file.MODEL, min(opset, EXPORTER), exporter)
        graph = model_file.load_graph(raw)
        tracing.fold_transposes(graph, raw)
        if hasattr(config, "open_outputs"):
            config.open_outputs(graph)
        declare_opset(graph, opset)
        facts[name or "."] = onnx_graph.facts(graph)
        ports[name] = onnx_graph.ports(graph)
        if weights is None:
            model_file.save(graph, job.out / name, raw)
        else:
            weights.add(graph, name, raw)
        remove_tree(raw)
    if len(parts) > 1:
        joins, loop = components.joins(model, task), decoders.loop_of(parts)
        record = composition.compose(ports, model_file.MODEL, joins, loop)
        composition.write(side_by_side(record) if weights else record, job.out)
        taken = {name: names for name, (names, _outputs) in ports.items()}
        example = partial(inputs.example, parts, job.out, task, model.config)
        write_reference(model, record, taken, example, job.out)
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


def check_opset(opset: int) -> None:
    """Raise `StageError` for an opset that cannot be made."""
    if opset > NEWEST:
        raise export_error(f"exports have opsets up to {NEWEST}, not {opset}", "lower the opset")


def declare_opset(model: Any, opset: int) -> None:
    """Give a graph of the exporter's a newer opset. Raises `StageError` if that changes it."""
    from onnx import helper

    if onnx_graph.opset(model) >= opset:
        return
    changed = sorted(CHANGED & set(onnx_graph.operators(model)))
    if changed or model.functions:
        raise export_error(
            f"the graph has {changed[0] if changed else 'functions'}, which opset {opset} changes",
            f"lower the opset to {EXPORTER}",
        )
    for item in model.opset_import:
        if item.domain in onnx_graph.STANDARD:
            item.version = opset
    model.ir_version = max(model.ir_version, helper.find_min_ir_version_for(model.opset_import))


def write_reference(model: Any, record: Composition, ports: Ports, make: Make, out: Path) -> None:
    """Write the prompt and PyTorch's tokens beside the components."""
    import numpy as np

    if record.loop is None:
        return
    sizes = shapes.base_shapes(model.config, out, {"sequence_length": LENGTH})
    loop = record.loop
    names = [one.name for one in record.components if one.name not in {loop.begin, loop.step}]
    first = {name: make(name, sizes) for name in names}
    tokens = [_start(model)] if first else words_of(make(loop.begin, sizes), loop)
    prompt = prompt_of(first, tokens, ports, loop)
    inputs = {key: value for one in first.values() for key, value in one.items()}
    found = _generated(model, inputs, tokens)
    arrays: dict[str, Any] = {**prompt, TOKENS: np.asarray(found, np.int64)}
    write_arrays(out / FILE, arrays)


def _start(model: Any) -> int:
    """The token that every text of an encoder-decoder begins with."""
    for part in (model.config, getattr(model.config, "decoder", None)):
        for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
            found = getattr(part, name, None)
            if isinstance(found, int):
                return found
    return 0


def _generated(model: Any, inputs: Mapping[str, Any], prompt: Sequence[int]) -> list[int]:
    """The most likely tokens, one after the other."""
    import torch

    for module in model.modules():  # the export has turned it on in all of them
        if hasattr(getattr(module, "config", None), "use_cache"):
            module.config.use_cache = False
    tokens = list(prompt)
    given = {name: torch.as_tensor(value) for name, value in inputs.items()}
    name = "decoder_input_ids" if given else "input_ids"
    with torch.inference_mode():
        for _ in range(COUNT):
            try:
                found = model(**given, **{name: torch.tensor([tokens])}, use_cache=False)
            except (TypeError, ValueError, RuntimeError, KeyError, IndexError) as error:
                text = f"PyTorch cannot generate with this model: {one_line(error)}"
                raise export_error(text, "export it for the task without `-with-past`") from error
            tokens.append(int(found.logits[0, -1].argmax()))
    return tokens[len(prompt) :]
