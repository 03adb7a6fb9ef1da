"""Mixtures of experts: every expert computes every token, with weight 0 where it is not selected.

Transformers gives each expert only the tokens that are routed to it, whose number depends on
values: a trace is valid only for the routes of its example, and no NPU supports such tensors. The
routing itself does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from optimum.exporters.onnx.model_patcher import ModelPatcher, PatchingSpec

_where, _index_add = torch.where, torch.Tensor.index_add_


class _Every:
    """In place of the experts that got a token."""

    def __init__(self, count: int) -> None:
        self._count = count

    def nonzero(self) -> Any:
        return torch.arange(self._count)[:, None]


class _Routes:
    """Which tokens the expert that comes next was asked for."""

    asked: Any = None
    tokens: Any = None


def _greater(counts: Any, _zero: int) -> _Every:
    return _Every(counts.shape[0])


def _all_tokens(condition: Any, *values: Any) -> Any:
    """`torch.where(mask)` of one expert: all tokens, and for each its place among the chosen."""
    if values or condition.dim() != 2:
        return _where(condition, *values)
    chosen = 0 if condition.shape[0] < condition.shape[1] else 1
    mask = condition.to(torch.int64)
    _Routes.asked = mask.amax(chosen)
    _Routes.tokens = torch.arange(condition.shape[1 - chosen])
    found = mask.argmax(chosen), _Routes.tokens
    return found if chosen == 0 else found[::-1]


def _add_all(tensor: Any, dim: int, index: Any, source: Any) -> Any:
    if index is _Routes.tokens:
        return tensor.add_(source)
    return _index_add(tensor, dim, index, source)


class Patcher(ModelPatcher):  # type: ignore[misc]  # Optimum has no types
    """Experts whose outputs count for the tokens that they were asked for."""

    def __enter__(self) -> None:
        super().__enter__()
        for expert in self._experts():
            expert.forward = _counted(expert.forward)

    def __exit__(self, *error: object) -> None:
        for expert in self._experts():
            del expert.forward  # the class has the original
        super().__exit__(*error)

    def _experts(self) -> Iterator[Any]:
        for module in self._model.modules():
            if isinstance(found := getattr(module, "experts", None), torch.nn.ModuleList):
                yield from found


def _counted(forward: Any) -> Any:
    def counted(*arguments: Any, **keywords: Any) -> Any:
        found = forward(*arguments, **keywords)
        return found * _Routes.asked[:, None].to(found.dtype)

    return counted


PATCHES = {
    "_MODEL_PATCHER": Patcher,
    "PATCHING_SPECS": [
        PatchingSpec(torch, "greater", _greater),
        PatchingSpec(torch, "where", _all_tokens),
        PatchingSpec(torch.Tensor, "index_add_", _add_all),
    ],
}
