"""Experts whose weights are one tensor: all see every token, and gates of zero leave out the rest.

Transformers sorts the tokens by expert and cuts the list where the next expert begins. Those places
depend on values, so a trace holds for the routes of its example only.
"""

from __future__ import annotations

from typing import Any

import torch

from workers.optimum_engine.architectures.patches import replacing


def _routes(logits: Any, count: int) -> tuple[Any, Any]:
    """The chosen experts of each token, and what each expert counts for it."""
    best, chosen = logits.topk(count, dim=-1)
    return chosen, torch.zeros_like(logits).scatter(1, chosen, best.softmax(-1))


def _sum(outputs: Any, gates: Any) -> Any:
    return (outputs * gates.transpose(0, 1)[..., None]).sum(0)


def mixed(layer: Any, states: Any) -> tuple[Any, Any]:
    """The feed-forward experts of Granite and JetMoE."""
    flat = states.reshape(-1, states.shape[-1])
    logits = layer.router.layer(flat)
    _chosen, gates = _routes(logits, layer.router.top_k)
    left, right = (flat @ layer.input_linear.weight.transpose(1, 2)).chunk(2, -1)
    inner = layer.activation(left) * right
    found = _sum(inner @ layer.output_linear.weight.transpose(1, 2), gates).view(states.shape)
    return found + getattr(layer, "bias", 0), logits


def asked(layer: Any, states: Any) -> tuple[Any, Any, Any]:
    """The queries of JetMoE's chosen attention experts."""
    flat = states.reshape(-1, states.shape[-1])
    logits = layer.router.layer(flat)
    chosen, gates = _routes(logits, layer.top_k)
    queries = (flat @ layer.input_linear.weight.transpose(1, 2)).transpose(0, 1)
    picked = queries.gather(1, chosen[..., None].expand(-1, -1, queries.shape[-1]))
    return picked.view(*states.shape[:2], layer.top_k, -1), logits, (chosen, gates)


def answered(layer: Any, heads: Any, routes: tuple[Any, Any]) -> Any:
    """What JetMoE's attention experts make of the answers to their queries."""
    chosen, gates = routes
    flat = heads.reshape(-1, *heads.shape[2:])
    places = chosen[..., None].expand(-1, -1, flat.shape[-1])
    size = flat.shape[0], layer.num_experts, flat.shape[-1]
    spread = torch.zeros(size).scatter(1, places, flat).transpose(0, 1)
    found = _sum(spread @ layer.output_linear.weight.transpose(1, 2), gates)
    return found.view(*heads.shape[:2], -1) + layer.bias


def shared(layer: Any, states: Any) -> Any:
    """The experts of Aria, some of which see every token in any case."""
    flat = states.reshape(-1, states.shape[-1])
    _chosen, gates = _routes(layer.router(flat), layer.config.moe_topk)
    left, right = (flat @ layer.experts.fc1.weight).chunk(2, -1)
    outputs = (torch.nn.functional.silu(left) * right) @ layer.experts.fc2.weight
    return _sum(outputs, gates).view(states.shape) + layer.shared_experts(states)


PATCHES = replacing(
    {
        "GraniteMoeMoE": {"forward": mixed},
        "GraniteMoeSharedMoE": {"forward": mixed},
        "GraniteMoeHybridMoE": {"forward": mixed},
        "JetMoeMoE": {"forward": mixed},
        "JetMoeMoA": {"map": asked, "reduce": answered},
        "AriaTextMoELayer": {"forward": shared},
    }
)
