"""ProphetNet: the mask of its predicted streams, which Transformers fills in place.

TorchScript's exporter forgets what is written into one row of a tensor, so every position of those
streams would see the whole text.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from workers.optimum_engine.architectures.patched import patched
from workers.optimum_engine.architectures.patches import replacing


def bias(length: int, streams: int, _device: Any, dtype: Any) -> Any:
    """Which positions each stream may see: those of the text, then those of the stream itself."""
    places = torch.arange(length)
    ahead = places[None, :] - places[:, None]
    first = torch.arange(streams)[:, None, None]
    text = (ahead > -first) & (places > 0)
    own = (ahead != 0).expand(streams, length, length)
    return torch.cat([text, own], dim=2).to(dtype) * torch.finfo(dtype).min


def masked(layer: Any, hidden_states: Any, attention_mask: Any) -> Any:
    """The mask for a text, made from that bias."""
    kind = type(layer)
    with patched("ngram_attention_bias", bias, sys.modules[kind.__module__]):
        return kind.prepare_predict_attention_mask(layer, hidden_states, attention_mask)


_MASK = {"prepare_predict_attention_mask": masked}
PATCHES = replacing({"ProphetNetDecoder": _MASK, "XLMProphetNetDecoder": _MASK})
