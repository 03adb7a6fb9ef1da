"""Compares an export with its model, component by component, while the model is in memory.

An engine says how its models compute.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.verification import EXPORT
from workers.engine import StageJob
from workers.numerics.compare import Row, compare, fault
from workers.numerics.kept import Kept, counted, keep
from workers.sources import model_file, onnx_graph, runtime
from workers.sources.errors import export_error, listed

_EAGER = "eager"
LARGE = 2 << 30
"""A model with so many bytes of weights is not in memory together with its graphs."""
RULE = [[1 << 30, 1, 1, 4], [0, 1, 1, 8]]
"""The sizes of the parts of the samples (`workers.samples.parts`); the last part is compared."""
Sample = dict[str, Any]
Samples = Mapping[str, Sequence[Sample]]
"""Of every component."""
Part = tuple[Any, Any]
"""A module, and what its engine knows of it."""
Compute = Callable[[Part, Sequence[Sample]], tuple[list[dict[str, Any]], str]]
"""Gives a part's outputs for samples under the names of its graph; and the error for which it did
not run unchanged, if there was one."""


class NotComparable(Exception):
    """Why PyTorch's outputs are no measure for a graph, or cannot be had."""


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
    job: StageJob, parts: dict[str, Part], given: Samples, kind: str, compute: Compute
) -> tuple[dict[str, Any], dict[str, Any]]:
    """For the facts, what was compared; and the figures. Raises `StageError` if one differs.

    `kind`: of the samples. `parts` is emptied: a large model has left the memory before ONNX
    Runtime maps its graphs.
    """
    told: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    files_of = {name: model_file.find(job.out, name) for name in parts}
    computed: dict[str, Outputs] = {}
    for name, part in parts.items():
        job.progress(f"computing {name} with PyTorch" if name else "computing with PyTorch")
        computed[name] = outputs_of(part, files_of[name], given[name], compute)
    large = any(_size(one[0]) >= LARGE for one in parts.values())
    if large:
        del part
        parts.clear()
        gc.collect()
    for name in tuple(computed):
        job.progress(f"comparing {name} with the model" if name else "comparing with the model")
        file, sets = files_of[name], given[name]
        found = rows(file, sets, computed[name])
        if faults(found) and not large and can_be_eager(parts[name]):
            other = outputs_of(parts[name], file, sets, compute, eager=True)
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
    least = min(len(sets) for sets in given.values())
    facts = {"samples": least, "kind": kind, "snr": f">= {EXPORT.snr:g}", "parts": told}
    return facts, figures


def outputs_of(
    part: Part, file: Path, sets: Sequence[Sample], compute: Compute, *, eager: bool = False
) -> Outputs:
    """What PyTorch computes. `eager`: with attention step by step.

    With PyTorch's fused attention, some models of Transformers let every token see the whole text
    when the mask hides nothing, although they do not when it hides something.
    """
    module = part[0]
    before = getattr(module.config, "_attn_implementation", "")
    if eager:
        module.set_attn_implementation(_EAGER)
    try:
        found, traced = compute(part, sets)
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
    return compare([runtime.run(session, one) for one in sets], theirs.values, EXPORT)


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


def noticed(weights_of: Mapping[str, Any], compared_facts: Mapping[str, Any]) -> dict[str, str]:
    """What a user should know of the export."""
    told = []
    if new := weights_of.get("new"):
        told.append(f"the head is new, with random weights ({listed(new)})")
    if reason := weights_of.get("not"):
        told.append(f"the tensors of the checkpoint are not counted: {reason}")
    if reason := compared_facts.get("not"):
        told.append(f"the export is not compared with its model: {reason}")
    return {"notice": "; ".join(told)} if told else {}
