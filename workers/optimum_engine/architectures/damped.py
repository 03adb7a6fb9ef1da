"""MEGA: its moving averages as products with a matrix of shifts, not by Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from optimum.exporters.onnx.model_patcher import ModelPatcher, PatchingSpec

_all = torch.Tensor.all


def convolve(inputs: Any, kernel: Any, length: int) -> Any:
    """The causal convolution of sequences with a kernel; what comes after `length` is cut off."""
    size = int(length)
    steps = torch.arange(size)
    shift = steps[None, :] - steps[:, None]
    taps = kernel[:, shift.clamp(min=0, max=kernel.shape[-1] - 1)]
    reached = (shift >= 0) & (shift < kernel.shape[-1])
    products = torch.where(reached, taps, torch.zeros_like(taps))
    return (inputs[..., None, :] @ products[None])[..., 0, :]


def whole(tensor: Any, *arguments: Any, **more: Any) -> Any:
    """`Tensor.all` of a mask that is numbers, which exporters take for truth values."""
    return _all(tensor.to(torch.bool), *arguments, **more)


class Patcher(ModelPatcher):  # type: ignore[misc]  # Optimum has no types
    """The convolution of every layer replaced."""

    def __enter__(self) -> None:
        super().__enter__()
        for layer in self._layers():
            layer.fft_convolution = convolve

    def __exit__(self, *error: object) -> None:
        for layer in self._layers():
            del layer.fft_convolution  # the class has the original
        super().__exit__(*error)

    def _layers(self) -> Iterator[Any]:
        found = self._model.modules()
        return (module for module in found if hasattr(module, "fft_convolution"))


PATCHES = {
    "_MODEL_PATCHER": Patcher,
    "PATCHING_SPECS": [PatchingSpec(torch.Tensor, "all", whole)],
}
