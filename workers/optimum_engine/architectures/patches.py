"""Replaces operators that the exporters lack, or that make shapes depend on values, by others, and
methods of a model's layers, while the model is exported or compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MethodType
from typing import Any

import torch
from optimum.exporters.onnx.model_patcher import ModelPatcher, PatchingSpec


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


_pool = torch.nn.functional.adaptive_avg_pool2d


def adaptive_avg_pool2d(tensor: Any, output_size: Any) -> Any:
    """`adaptive_avg_pool2d` to sizes that divide no image evenly, as products with averages."""
    wanted = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
    if None in wanted or set(wanted) == {1}:
        return _pool(tensor, output_size)
    rows, columns = (
        _averages(int(size), count) for size, count in zip(tensor.shape[-2:], wanted, strict=True)
    )
    return rows @ tensor @ columns.transpose(0, 1)


def _averages(size: int, count: int) -> Any:
    found = torch.zeros(count, size)
    for place in range(count):
        begin, end = place * size // count, -(-(place + 1) * size // count)
        found[place, begin:end] = 1 / (end - begin)
    return found


_full = torch.full


def full(size: Any, fill_value: Any, **more: Any) -> Any:
    """`torch.full` with the type of its value; TorchScript knows it for numbers with a point."""
    if type(fill_value) is int and more.get("dtype") is None:
        more["dtype"] = torch.int64
    if not isinstance(fill_value, bool):
        return _full(size, fill_value, **more)
    more["dtype"] = more.get("dtype") or torch.bool
    return (torch.ones if fill_value else torch.zeros)(size, **more)


_permute = torch.Tensor.permute


def permute(tensor: Any, *dims: Any) -> Any:
    """`Tensor.permute`, whose dimensions TorchScript's exporter does not count from the end."""
    places = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    return _permute(tensor, *(place % tensor.dim() for place in places))


_fold = torch.nn.functional.fold


def fold(tensor: Any, output_size: Any, kernel_size: Any, stride: Any = 1, **more: Any) -> Any:
    """`fold` of patches that do not overlap, which older opsets have no operator for."""
    if not isinstance(kernel_size, tuple) or kernel_size != stride or more:
        return _fold(tensor, output_size, kernel_size, stride=stride, **more)
    (height, width), (high, wide) = output_size, kernel_size
    found = tensor.reshape(tensor.shape[0], -1, high, wide, height // high, width // wide)
    return found.permute(0, 1, 4, 2, 5, 3).reshape(tensor.shape[0], -1, height, width)


SPECS = (
    PatchingSpec(torch, "multinomial", multinomial),
    PatchingSpec(torch.nn.functional, "interpolate", interpolate),
    PatchingSpec(torch.nn.functional, "adaptive_avg_pool2d", adaptive_avg_pool2d),
    PatchingSpec(torch.nn.functional, "fold", fold),
    PatchingSpec(torch.Tensor, "scatter_reduce", scatter_reduce),
    PatchingSpec(torch, "repeat_interleave", repeat_interleave),
    PatchingSpec(torch, "full", full),
    PatchingSpec(torch, "expm1", expm1),
    PatchingSpec(torch.Tensor, "expm1", expm1),
    PatchingSpec(torch.Tensor, "masked_scatter", masked_scatter),
    PatchingSpec(torch.Tensor, "permute", permute),
)
"""For all rows with `inputs` or `like`, beside Optimum's own."""


Methods = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Class of a layer -> its methods -> functions in their place, which take the layer first."""


def replacing(methods: Methods) -> dict[str, Any]:
    """The `PATCHES` of a family."""

    class Patcher(ModelPatcher):  # type: ignore[misc]  # Optimum has no types
        def __enter__(self) -> None:
            super().__enter__()
            for layer, name, function in self._replaced():
                setattr(layer, name, MethodType(function, layer))

        def __exit__(self, *error: object) -> None:
            for layer, name, _function in self._replaced():
                delattr(layer, name)  # the class has the original
            super().__exit__(*error)

        def _replaced(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
            for layer in self._model.modules():
                for name, function in methods.get(type(layer).__name__, {}).items():
                    yield layer, name, function

    return {"_MODEL_PATCHER": Patcher}
