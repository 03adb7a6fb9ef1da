"""Layers of single architectures, with methods that exporters support and a trace records."""

from __future__ import annotations

import math
import sys
from typing import Any

import torch

from workers.optimum_engine.architectures.patched import patched
from workers.optimum_engine.architectures.patches import replacing


def transform(_layer: Any, states: Any) -> tuple[Any]:
    """FNet: the real part of its transform over tokens and features, as products with cosines and
    sines."""
    cosines, sines = zip(*(_waves(states.shape[place]) for place in (1, 2)), strict=True)
    return (cosines[0] @ states @ cosines[1] - sines[0] @ states @ sines[1],)


def _waves(size: Any) -> tuple[Any, Any]:
    steps = torch.arange(size)
    turns = (steps[:, None] * steps[None, :]) % size
    angles = turns.to(torch.float32) * (2 * math.pi) / size
    return torch.cos(angles), torch.sin(angles)


def chunk(_layer: Any, states: Any, window: int, _onnx_export: bool = False) -> Any:
    """Longformer and LED: windows of twice the size; each overlaps the one before by half.

    Transformers takes them with `as_strided`. For a batch of one, the tensor is a view whose
    strides differ from those that TorchScript's exporter assumes, so the graph would read other
    values.
    """
    starts = range(0, int(states.shape[1]) - window, window)
    return torch.stack([states[:, start : start + 2 * window] for start in starts], dim=1)


def scan(layer: Any, hidden_states: Any, recurrent_gate: Any, reset: Any, **more: Any) -> Any:
    """RecurrentGemma: the recurrence over the tokens, with the scaling that a trace lacks."""
    if torch.jit.is_tracing():
        scale = torch.sqrt(1 - recurrent_gate * recurrent_gate)
        hidden_states = hidden_states * torch.where(reset, torch.ones_like(scale), scale)
    own = type(layer)._rnn_scan
    return own(layer, hidden_states, recurrent_gate, reset, **more)


def bias(length: int, streams: int, _device: Any, dtype: Any) -> Any:
    """Which positions each stream may see: those of the text, then those of the stream itself."""
    places = torch.arange(length)
    ahead = places[None, :] - places[:, None]
    first = torch.arange(streams)[:, None, None]
    text = (ahead > -first) & (places > 0)
    own = (ahead != 0).expand(streams, length, length)
    return torch.cat([text, own], dim=2).to(dtype) * torch.finfo(dtype).min


def masked(layer: Any, hidden_states: Any, attention_mask: Any) -> Any:
    """ProphetNet: the mask of its predicted streams for a text, which Transformers fills in place.

    TorchScript's exporter forgets what is written into one row of a tensor, so every position of
    those streams would see the whole text.
    """
    kind = type(layer)
    with patched("ngram_attention_bias", bias, sys.modules[kind.__module__]):
        return kind.prepare_predict_attention_mask(layer, hidden_states, attention_mask)


_WINDOWS, _MASK = {"_chunk": chunk}, {"prepare_predict_attention_mask": masked}
PATCHES = replacing(
    {
        "FNetBasicFourierTransform": {"forward": transform},
        "LEDEncoderSelfAttention": _WINDOWS,
        "LongformerSelfAttention": _WINDOWS,
        "ProphetNetDecoder": _MASK,
        "RecurrentGemmaRglru": {"_rnn_scan": scan},
        "XLMProphetNetDecoder": _MASK,
    }
)
