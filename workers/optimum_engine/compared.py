"""Compares an export with its model, component by component, while the model is in memory.

The model computes as Transformers wrote it: without what replaces its operators and methods for the
trace. Where it cannot run like that, it runs as it was traced, and the facts say so.
"""

from __future__ import annotations

import gc
import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matrix.verification import EXPORT
from workers.engine import StageJob
from workers.numerics.compare import Row, compare, fault
from workers.numerics.kept import Kept, counted, keep
from workers.optimum_engine import decoders, inputs
from workers.samples import files
from workers.samples.parts import JUDGE
from workers.sources import load, model_file, onnx_graph, runtime
from workers.sources.errors import export_error, one_line

NEVER = {
    "imagegpt": "Transformers rounds the scale of its attention, but not in a trace",
    "vits": "it draws random numbers",
}
"""Architectures whose own outputs are no measure, and why."""
_EAGER = "eager"
_DECODER = (
    ("input_ids", "decoder_input_ids"),
    ("attention_mask", "decoder_attention_mask"),
    ("position_ids", "decoder_position_ids"),
    ("encoder_attention_mask", "attention_mask"),
)
_PAST = re.compile(r"past_key_values\.(\d+)\.(.+)")
LARGE = 2 << 30
"""A model with so many bytes of weights is not in memory together with its graphs."""
_RULE = [[1 << 30, 1, 1, 4], [0, 1, 1, 8]]
"""The sizes of the parts of the samples (`workers.samples.parts`); the last part is compared."""
_OF_LOOPS = [[0, 1, 1, 4]]
"""The inputs of a decoder's step have to be generated first."""
Sample = dict[str, Any]
Part = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Samples:
    """Of every component, and of what kind they are."""

    of: Mapping[str, Sequence[Sample]]
    kind: str


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the model computes from the samples of a component."""

    values: Sequence[Mapping[str, Kept]]
    attention: str
    traced: str = ""
    """The error by which it did not run unchanged; empty: it did."""

    def told(self) -> dict[str, str]:
        """For the facts."""
        found = {"model": "as traced" if self.traced else "unchanged"}
        if self.traced:
            found["unchanged"] = self.traced
        return {**found, "attention": self.attention} if self.attention else found


def compare_parts(
    job: StageJob, parts: dict[str, Part], model_type: str, temp: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """For the facts, what was compared; and the figures. Raises `StageError` if one differs.

    `parts` is emptied: a large model has left the memory before ONNX Runtime maps its graphs.
    """
    if model_type in NEVER:
        return {"not": NEVER[model_type]}, {}
    given = sample_sets(job, temp, parts)
    told: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    files_of = {name: model_file.find(job.out, name) for name in parts}
    computed: dict[str, Outputs] = {}
    for name, part in parts.items():
        job.progress(f"computing {name} with PyTorch" if name else "computing with PyTorch")
        computed[name] = outputs_of(part, files_of[name], given.of[name])
    large = any(_size(one[0]) >= LARGE for one in parts.values())
    if large:
        del part
        parts.clear()
        gc.collect()
    for name in tuple(computed):
        job.progress(f"comparing {name} with the model" if name else "comparing with the model")
        file, sets = files_of[name], given.of[name]
        found = rows(file, sets, computed[name])
        if faults(found) and not large and can_be_eager(parts[name]):
            other = outputs_of(parts[name], file, sets, eager=True)
            if not faults(again := rows(file, sets, other)):
                computed[name], found = other, again
        if wrong := faults(found):
            where = f"{name}/" if name else ""
            raise export_error(
                f"the export does not compute what the model does: {where}{wrong[0]}",
                "it is a defect of the exporter: report it with the model's architecture",
            )
        told[name or "."] = computed[name].told()
        figures[name or "."] = found
    least = min(len(sets) for sets in given.of.values())
    facts = {"samples": least, "kind": given.kind, "snr": f">= {EXPORT.snr:g}", "parts": told}
    return facts, figures


def sample_sets(job: StageJob, temp: Path, parts: Mapping[str, Part]) -> Samples:
    """Samples of every component, made as the stage `inputs` makes them, and their kind."""
    out = temp / "inputs"
    out.mkdir()
    rule = _OF_LOOPS if decoders.loop_of(parts) else _RULE
    params = {"task": job.params["task"], "parts": rule, "seed": 0}
    given = {"export": job.out}
    told = inputs.run(replace(job, params=params, inputs=given, out=out), temp)
    sets = {name: files.load(out, name, JUDGE) for name in parts}
    return Samples(sets, told["samples"]["kind"])


def outputs_of(part: Part, file: Path, sets: Sequence[Sample], *, eager: bool = False) -> Outputs:
    """What PyTorch computes. `eager`: with attention step by step.

    With PyTorch's fused attention, some models of Transformers let every token see the whole text
    when the mask hides nothing, although they do not when it hides something.
    """
    module, _config = part
    before = getattr(module.config, "_attn_implementation", "")
    if eager:
        module.set_attn_implementation(_EAGER)
    try:
        try:
            found, traced = _run(part, sets), ""
        except _ERRORS as error:
            found, traced = _run_traced(part, sets), type(error).__name__
    finally:
        if eager:
            module.set_attn_implementation(before)
    graph = onnx_graph.load(file)
    ports = {value.name: onnx_graph.dims(value) for value in graph.graph.input}
    declared = {value.name: onnx_graph.dims(value) for value in graph.graph.output}
    values = []
    for sample, one in zip(sets, found, strict=True):
        shown = counted(sample, ports, one, declared)
        values.append({
            name: keep(value, shown.get(name), name=name)
            for name, value in one.items() if name in declared
        })  # fmt: skip
    if not values[0]:
        raise export_error(f"none of PyTorch's outputs ({', '.join(found[0])}) is in the graph")
    return Outputs(values, _EAGER if eager else before, traced)


def rows(file: Path, sets: Sequence[Sample], theirs: Outputs) -> dict[str, Row]:
    """The figures of every output of a component."""
    session = runtime.session(file)
    there = [one.name for one in session.get_outputs() if one.name in theirs.values[0]]
    known = {one.name for one in session.get_inputs()}
    found = []
    for sample in sets:
        feeds = {name: value for name, value in sample.items() if name in known}
        found.append(dict(zip(there, session.run(there, feeds), strict=True)))
    return compare(found, theirs.values, EXPORT)


def faults(figures: Mapping[str, Row]) -> list[str]:
    """Outputs that are not the model's."""
    found = ((name, fault(row, EXPORT, "the model")) for name, row in figures.items())
    return [f"{name}: {problem}" for name, problem in found if problem]


def _size(module: Any) -> int:
    return sum(one.numel() * one.element_size() for one in module.parameters())


def can_be_eager(part: Part) -> bool:
    """Whether a module has another attention than the one that it would compute with."""
    module = part[0]
    has_switch = hasattr(module, "set_attn_implementation")
    return has_switch and getattr(module.config, "_attn_implementation", _EAGER) != _EAGER


_ERRORS = (TypeError, ValueError, RuntimeError, KeyError, IndexError, AttributeError)


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
        raise export_error(text, "the log of the cell has the details") from error


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
