"""What the models of this engine compute, for the comparison of an export with its model.

The model computes as Transformers wrote it: without what replaces its operators and methods for the
trace. Where it cannot run like that, it runs as it was traced, and the facts say so.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workers.engine import StageJob
from workers.optimum_engine import decoders, inputs
from workers.samples import files
from workers.samples.parts import JUDGE
from workers.sources import compared, load
from workers.sources.compared import RULE, NotComparable, Part, Sample, Samples
from workers.sources.errors import one_line

NEVER = {
    "imagegpt": "Transformers rounds the scale of its attention, but not in a trace",
    "vits": "it draws random numbers",
}
"""Architectures whose own outputs are no measure, and why."""
_DECODER = (
    ("input_ids", "decoder_input_ids"),
    ("attention_mask", "decoder_attention_mask"),
    ("position_ids", "decoder_position_ids"),
    ("encoder_attention_mask", "attention_mask"),
)
_PAST = re.compile(r"past_key_values\.(\d+)\.(.+)")
_OF_LOOPS = [[0, 1, 1, 4]]
"""The inputs of a decoder's step have to be generated first."""


def compare(
    job: StageJob, parts: dict[str, Part], model_type: str, temp: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `compared.compare_parts` says of the parts, which it empties; or why nothing can be
    compared."""
    if model_type in NEVER:
        return {"not": NEVER[model_type]}, {}
    given = sample_sets(job, temp, parts)
    try:
        return compared.compare_parts(job, parts, *given, compute)
    except NotComparable as reason:
        return {"not": str(reason)}, {}


def sample_sets(job: StageJob, temp: Path, parts: Mapping[str, Part]) -> tuple[Samples, str]:
    """Samples of every component, made as the stage `inputs` makes them, and their kind."""
    out = temp / "inputs"
    out.mkdir()
    rule = _OF_LOOPS if decoders.loop_of(parts) else RULE
    params = {"task": job.params["task"], "parts": rule, "seed": 0}
    given = {"export": job.out}
    told = inputs.run(replace(job, params=params, inputs=given, out=out), temp)
    sets = {name: files.load(out, name, JUDGE) for name in parts}
    return sets, told["samples"]["kind"]


_ERRORS = (TypeError, ValueError, RuntimeError, KeyError, IndexError, AttributeError)


def compute(part: Part, sets: Sequence[Sample]) -> tuple[list[dict[str, Any]], str]:
    """The outputs, and the error for which the model did not run unchanged."""
    try:
        return _run(part, sets), ""
    except _ERRORS as error:
        return _run_traced(part, sets), type(error).__name__


def _run(part: Part, sets: Sequence[Sample]) -> list[dict[str, Any]]:
    """By the module's own `forward`: a patcher that is not entered replaces nothing, but knows how
    outputs become those of the graph."""
    module, config = part
    if plain := getattr(config, "plain_forward", None):
        return _called(plain(module), part, sets)
    patcher = config.patch_model_for_export(module, model_kwargs={})
    return _called(patcher.patched_forward, part, sets)


def _run_traced(part: Part, sets: Sequence[Sample]) -> list[dict[str, Any]]:
    import torch

    module, config = part
    attention = torch.nn.functional.scaled_dot_product_attention
    try:
        with config.patch_model_for_export(module, model_kwargs={}):
            # Optimum's attention is for tracing: it lacks what models ask of PyTorch's otherwise.
            torch.nn.functional.scaled_dot_product_attention = attention
            return _called(module.forward, part, sets)
    except _ERRORS as error:
        text = f"PyTorch cannot run the model on its samples: {one_line(error)}"
        raise NotComparable(text) from error


def _called(forward: Any, part: Part, sets: Sequence[Sample]) -> list[dict[str, Any]]:
    """The outputs of all samples under the names of the graph's."""
    import torch

    module, config = part
    module.eval()
    known = inspect.signature(module.forward).parameters
    found = []
    for sample in sets:
        load.seed_everything(0)
        with torch.inference_mode():
            raw = forward(**_arguments(sample, known))
        flat: dict[str, Any] = {}
        for name, value in raw.items():
            output = config.torch_to_onnx_output_map.get(name, name)
            if isinstance(value, list | tuple) and len(value) == 1 and output in config.outputs:
                flat[output] = value[0]
            elif isinstance(value, list | tuple):
                flat |= config.flatten_output_collection_property(output, value)
            elif value is not None:
                flat[output] = value
        found.append(
            {name: one.numpy() for name, one in flat.items() if isinstance(one, torch.Tensor)}
        )
    return found


def _arguments(sample: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Arrays as tensors under the names of PyTorch's arguments, a cache as tuples of a layer."""
    import torch

    plain: dict[str, Any] = {}
    past: dict[int, list[Any]] = {}
    for name, array in sample.items():
        tensor = torch.from_numpy(array.copy())
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
