"""Replaces operators that the exporters lack, or that make shapes depend on values, by others."""

from __future__ import annotations

from typing import Any

import torch
from optimum.exporters.onnx.model_patcher import PatchingSpec


def expm1(tensor: Any) -> Any:
    """`torch.expm1`; near zero it loses digits that fp32 graphs do not show."""
    return tensor.exp() - 1


def masked_scatter(tensor: Any, mask: Any, source: Any) -> Any:
    """`Tensor.masked_scatter` without tensors whose sizes depend on values, for NPUs."""
    whole = tensor.dim() == 3 and source.shape[-1] == tensor.shape[-1]
    taken = mask.expand_as(tensor)[..., 0] if whole else mask.expand_as(tensor)
    place = (taken.to(torch.int64).flatten().cumsum(0) - 1).clamp(min=0)
    rows = source.reshape(-1, source.shape[-1]) if whole else source.flatten()
    return torch.where(mask, rows[place].reshape(tensor.shape), tensor)


_repeat_interleave = torch.repeat_interleave


def repeat_interleave(tensor: Any, repeats: Any, dim: int | None = None, **more: Any) -> Any:
    """`torch.repeat_interleave` of a fixed number, which TorchScript's exporter gets wrong."""
    if not isinstance(repeats, int) or dim is None:
        return _repeat_interleave(tensor, repeats, dim, **more)
    place = dim % tensor.dim()
    return torch.stack([tensor] * repeats, place + 1).flatten(place, place + 1)


_interpolate = torch.nn.functional.interpolate


def interpolate(tensor: Any, *arguments: Any, antialias: bool = False, **more: Any) -> Any:
    """`interpolate` with antialias as a constant: it fits positions to an image of one size."""
    if not antialias:
        return _interpolate(tensor, *arguments, **more)
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        return _interpolate(tensor.detach(), *arguments, antialias=True, **more)
    finally:
        torch._C._set_tracing_state(state)


def multinomial(weights: Any, count: Any, **_more: Any) -> Any:
    """`torch.multinomial` of equal weights: the first ones, for models that accept any."""
    return torch.arange(int(count)) % max(int(weights.shape[0]), 1)


_scatter_reduce = torch.Tensor.scatter_reduce
_FAR = 1e9


def scatter_reduce(
    tensor: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """`Tensor.scatter_reduce` without the values that were there, which ONNX always includes."""
    if include_self:
        return _scatter_reduce(tensor, dim, index, src, reduce)
    none = torch.zeros_like(tensor)
    count = _scatter_reduce(none, dim, index, torch.ones_like(src), "sum")
    if reduce in {"amin", "amax"}:
        far = torch.full_like(tensor, _FAR if reduce == "amin" else -_FAR)
        found = _scatter_reduce(far, dim, index, src, reduce)
    else:
        found = _scatter_reduce(none, dim, index, src, "sum")
        found = found / count.clamp(min=1) if reduce == "mean" else found
    return torch.where(count > 0, found, tensor)


SPECS = (
    PatchingSpec(torch, "multinomial", multinomial),
    PatchingSpec(torch.nn.functional, "interpolate", interpolate),
    PatchingSpec(torch.Tensor, "scatter_reduce", scatter_reduce),
    PatchingSpec(torch, "repeat_interleave", repeat_interleave),
    PatchingSpec(torch, "expm1", expm1),
    PatchingSpec(torch.Tensor, "expm1", expm1),
    PatchingSpec(torch.Tensor, "masked_scatter", masked_scatter),
)
"""For all rows with `inputs` or `like`, beside Optimum's own."""
