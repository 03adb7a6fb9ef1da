"""Compares the export with what PyTorch computes from the same input values.

This is not a stage of a build. Onboarding requests it, because parity compares packages with their
export and says nothing about the export itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from matrix.verification import COSINE
from workers.engine import StageJob
from workers.optimum_engine import components
from workers.optimum_engine.export import source_folder
from workers.runtimes.values import SETS, compare
from workers.samples import files
from workers.samples.parts import JUDGE
from workers.sources import load, model_file, runtime
from workers.sources.errors import one_line, unsupported
from workers.sources.load import exporter_task

_DECODER = (
    ("input_ids", "decoder_input_ids"),
    ("attention_mask", "decoder_attention_mask"),
    ("position_ids", "decoder_position_ids"),
    ("encoder_attention_mask", "attention_mask"),
)
_PAST = re.compile(r"past_key_values\.(\d+)\.(.+)")


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """For every output of every component, its distance from PyTorch's."""
    if "file" in job.params:
        raise unsupported("a ready ONNX file has no PyTorch model to compare with", "")
    task = exporter_task(job.params["task"])
    folder = source_folder(job, temp)
    job.progress("loading the model")
    model, _ = load.load(job.request, folder, task)
    found = {}
    for name, (module, config) in components.parts(model, task, folder).items():
        job.progress(f"comparing {name} with PyTorch" if name else "comparing with PyTorch")
        sets = files.load(job.inputs["inputs"], name, JUDGE)[:SETS]
        theirs = _outputs(module, config, sets)
        file = model_file.find(job.inputs["export"], name)
        ours = _run(file, sets, list(theirs[0]))
        told = compare(ours, theirs)
        if min(one.get("cosine", 1.0) for one in told.values()) < COSINE["fp32"] and _plain(module):
            told = compare(ours, _outputs(module, config, sets))
        found[name or "."] = told
    return {"outputs": found, "sets": SETS}


def _plain(module: Any) -> bool:
    """Let a model compute its attention step by step; whether it has done otherwise.

    With PyTorch's fused attention, some models of Transformers let every token see the whole text
    when the mask hides nothing, although they do not when it hides something.
    """
    switch = getattr(module, "set_attn_implementation", None)
    if switch is None or module.config._attn_implementation == "eager":
        return False
    switch("eager")
    return True


def _outputs(module: Any, config: Any, sets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of PyTorch, under the names of the graph's outputs."""
    import torch

    found = []
    attention = torch.nn.functional.scaled_dot_product_attention
    known = inspect.signature(module.forward).parameters
    # The patched model has the inputs and outputs that were exported, and no others.
    with torch.inference_mode(), config.patch_model_for_export(module):
        # Optimum's attention is for tracing: it lacks what models ask of PyTorch's otherwise.
        torch.nn.functional.scaled_dot_product_attention = attention
        for sample in sets:
            try:
                raw = module.eval()(**_arguments(sample, known))
            except (TypeError, ValueError, RuntimeError, KeyError, IndexError) as error:
                text = f"PyTorch cannot run the model on its inputs: {one_line(error)}"
                raise unsupported(text, "the log has the details") from error
            flat: dict[str, Any] = {}
            for name, value in raw.items():
                output = config.torch_to_onnx_output_map.get(name, name)
                if isinstance(value, list | tuple) and len(value) == 1 and output in config.outputs:
                    flat[output] = value[0]
                elif isinstance(value, list | tuple):
                    flat |= config.flatten_output_collection_property(output, value)
                elif value is not None:
                    flat[output] = value
            told = [name for name in config.outputs if hasattr(flat.get(name), "numpy")]
            found.append({name: flat[name].numpy() for name in told})
    if not found[0]:
        raise unsupported("none of the outputs can be compared", "")
    return found


def _arguments(sample: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Arrays as tensors under the names of PyTorch's arguments, a cache as tuples of a layer."""
    import torch

    plain: dict[str, Any] = {}
    past: dict[int, list[Any]] = {}
    for name, array in sample.items():
        tensor = torch.from_numpy(array)
        if match := _PAST.fullmatch(name):
            past.setdefault(int(match[1]), []).append(tensor)
        else:
            plain[name] = tensor
    if past:
        plain["past_key_values"] = tuple(tuple(past[layer]) for layer in sorted(past))
    if "encoder_outputs" in known and (past or "encoder_hidden_states" in plain):
        # A decoder's graph has the names of a decoder, its module those of the whole model.
        if "encoder_hidden_states" in plain:
            plain["encoder_outputs"] = (plain.pop("encoder_hidden_states"),)
        else:  # the cache has what follows from it: only its length counts
            plain["encoder_outputs"] = (torch.zeros(1, past[0][-1].shape[2], 1),)
        for ours, theirs in _DECODER:
            if ours in plain:
                plain[theirs] = plain.pop(ours)
    return plain


def _run(file: Path, sets: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    session = runtime.session(file)
    there = [one.name for one in session.get_outputs() if one.name in names]
    return [dict(zip(there, session.run(there, one), strict=True)) for one in sets]
