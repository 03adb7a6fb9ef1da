"""FNet: its Fourier transform as products with cosines and sines, which exporters support."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from optimum.exporters.onnx.model_patcher import ModelPatcher


def transform(states: Any) -> Any:
    """The real part of the transform over tokens and features."""
    cosines, sines = zip(*(_waves(states.shape[place]) for place in (1, 2)), strict=True)
    return SimpleNamespace(real=cosines[0] @ states @ cosines[1] - sines[0] @ states @ sines[1])


def _waves(size: Any) -> tuple[Any, Any]:
    steps = torch.arange(size)
    turns = (steps[:, None] * steps[None, :]) % size
    angles = turns.to(torch.float32) * (2 * math.pi) / size
    return torch.cos(angles), torch.sin(angles)


class Patcher(ModelPatcher):  # type: ignore[misc]  # Optimum has no types
    """The transform of every layer replaced."""

    def __enter__(self) -> None:
        super().__enter__()
        self._own = [(one, one.fourier_transform) for one in self._layers()]
        for layer, _own in self._own:
            layer.fourier_transform = transform

    def __exit__(self, *error: object) -> None:
        for layer, own in self._own:
            layer.fourier_transform = own
        super().__exit__(*error)

    def _layers(self) -> Iterator[Any]:
        found = self._model.modules()
        return (module for module in found if hasattr(module, "fourier_transform"))


PATCHES = {"_MODEL_PATCHER": Patcher}
