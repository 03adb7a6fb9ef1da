"""Longformer and LED: overlapping windows of a text as slices.

Transformers takes them with `as_strided`. For a batch of one, the tensor is a view whose strides
differ from those that TorchScript's exporter assumes, so the graph would read other values.
"""

from __future__ import annotations

from typing import Any

import torch

from workers.optimum_engine.architectures.patches import replacing


def chunk(_layer: Any, states: Any, window: int, _onnx_export: bool = False) -> Any:
    """Windows of twice the size; each overlaps the one before by half."""
    starts = range(0, int(states.shape[1]) - window, window)
    return torch.stack([states[:, start : start + 2 * window] for start in starts], dim=1)


_WINDOWS = {"_chunk": chunk}
PATCHES = replacing({"LongformerSelfAttention": _WINDOWS, "LEDEncoderSelfAttention": _WINDOWS})
