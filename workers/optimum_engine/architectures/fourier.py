"""FNet: its Fourier transform as products with cosines and sines, which exporters support."""

from __future__ import annotations

import math
from typing import Any

import torch

from workers.optimum_engine.architectures.patches import replacing


def transform(_layer: Any, states: Any) -> tuple[Any]:
    """The real part of the transform over tokens and features."""
    cosines, sines = zip(*(_waves(states.shape[place]) for place in (1, 2)), strict=True)
    return (cosines[0] @ states @ cosines[1] - sines[0] @ states @ sines[1],)


def _waves(size: Any) -> tuple[Any, Any]:
    steps = torch.arange(size)
    turns = (steps[:, None] * steps[None, :]) % size
    angles = turns.to(torch.float32) * (2 * math.pi) / size
    return torch.cos(angles), torch.sin(angles)


PATCHES = replacing({"FNetBasicFourierTransform": {"forward": transform}})
