"""Longformer and LED: overlapping windows of a text as slices.

Transformers takes them with `as_strided`. For a batch of one, the tensor is a view whose strides
differ from those that TorchScript's exporter assumes, so the graph would read other values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from optimum.exporters.onnx.model_patcher import ModelPatcher

_NAME = "_chunk"


def chunk(states: Any, window: int, _onnx_export: bool = False) -> Any:
    """`_chunk` of a layer: windows of twice the size, each half over the next."""
    starts = range(0, int(states.shape[1]) - window, window)
    return torch.stack([states[:, start : start + 2 * window] for start in starts], dim=1)


class Patcher(ModelPatcher):  # type: ignore[misc]  # Optimum has no types
    """The windows of every layer replaced."""

    def __enter__(self) -> None:
        super().__enter__()
        for layer in self._layers():
            setattr(layer, _NAME, chunk)

    def __exit__(self, *error: object) -> None:
        for layer in self._layers():
            delattr(layer, _NAME)
        super().__exit__(*error)

    def _layers(self) -> Iterator[Any]:
        return (module for module in self._model.modules() if hasattr(module, _NAME))


PATCHES = {"_MODEL_PATCHER": Patcher}
