"""What a quantized graph computes in more bits than its precision says, and how much of it may be.

A precision is a promise about size and speed: beyond `matrix.verification.MORE_BITS` and `IN_FLOAT`
a graph is another precision.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from matrix.verification import IN_FLOAT, MORE_BITS
from workers.optimum_engine import losses

_SIXTEEN = {4, 5}
"""ONNX's numbers of uint16 and int16."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The operators with a weight."""

    weights: Mapping[str, float]
    """Each one's share of all their weights."""
    macs: Mapping[str, float]
    """Each one's share of all their multiplications; of weights where shapes are open."""


def sizes(model: Any) -> Sizes:
    """Of a float graph with the type of every tensor."""
    dims = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    shapes = {
        value.name: [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.value_info, *model.graph.output)
    }
    weights, macs = {}, {}
    for node in losses.weighted(model):
        weight = dims[node.input[1]]
        weights[node.name] = math.prod(weight)
        places = shapes.get(node.output[0], [])
        # Each place of the result takes a whole weight; places are what is no channel.
        outside = places[2:] if node.op_type.startswith("Conv") else places[:-1]
        macs[node.name] = math.prod(weight) * math.prod(outside)
    return Sizes(_shares(weights), _shares(macs))


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values()) or 1
    return {name: count / total for name, count in counts.items()}


def within(names: Collection[str], shares: Mapping[str, float], most: float) -> list[str]:
    """The first of these operators whose shares are together no more than `most`."""
    found, total = [], 0.0
    for name in names:
        if (more := total + shares.get(name, 0.0)) <= most:
            found.append(name)
            total = more
    return found


def applied(
    precision: str, own: Sizes, wide: Collection[str], floats: Collection[str]
) -> dict[str, Any]:
    """For facts: `label` is what people are told of the precision."""
    parts = [precision]
    if wide:
        bits = "16-bit weights" if precision == "w8a16" else "16-bit results"
        parts.append(f"{_count(wide)} in {bits}")
    if floats:
        parts.append(f"{len(floats) if wide else _count(floats)} in float")
    more = {*floats, *(wide if precision == "w8a16" else ())}
    return {
        "label": ", ".join(parts),
        "wide": len(wide),
        "float": len(floats),
        "weights": round(sum(own.weights.get(name, 0.0) for name in more), 3),
        "macs": round(sum(own.macs.get(name, 0.0) for name in floats), 3),
    }


def told(found: Mapping[str, Any]) -> dict[str, Any]:
    """The facts and the notice of what is `applied`, if the precision says less."""
    if not found.get("wide") and not found.get("float"):
        return {}
    return {"applied": dict(found), "notice": found["label"]}


def wide_results(model: Any) -> float:
    """The share of the activations of a quantized graph that have 16 bits, rounded up."""
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    found = [kinds[node.input[2]] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    return math.ceil(1000 * sum(kind in _SIXTEEN for kind in found) / (len(found) or 1)) / 1000


def _count(names: Collection[str]) -> str:
    return f"{len(names)} operator{'s' * (len(names) > 1)}"


def fault(found: Mapping[str, Any]) -> str:
    """Why a graph may not have its label; empty: it may."""
    if found["weights"] > MORE_BITS:
        return (
            f"{found['weights']:.0%} of its weights have more than 8 bits (limit {MORE_BITS:.0%})"
        )
    if (share := found.get("results", 0.0)) > MORE_BITS:
        return f"{share:.0%} of its results have more than 8 bits (limit {MORE_BITS:.0%})"
    if found["macs"] > IN_FLOAT:
        return f"{found['macs']:.0%} of its products are in float (limit {IN_FLOAT:.0%})"
    return ""
