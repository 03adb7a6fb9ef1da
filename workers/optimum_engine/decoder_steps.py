"""Calls a step of a decoder so that its cache may have unused places.

A cache of fixed size is rarely full. The steps therefore take a mask that hides unused places, and
the position of their token, which cannot be derived from the size of the cache. Transformers'
decoders take these in three ways:

    by position_ids     a decoder's own argument: it and the 2D mask are all that is needed
    by distance         T5: positions follow from the places in the cache, the 2D mask is enough
    by length           BART and others count the cache: the position is passed as its length,
                        with a 4D mask, which they use unchanged
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

Prepare = Callable[[Any, dict[str, Any], Any], dict[str, Any]]
"""Makes the arguments of a call from them and the position of the token."""
_RELATIVE = ("t5", "mt5", "longt5", "umt5", "pix2struct")


def way(model: Any) -> Any:
    """How the decoder of a model gets its positions."""
    if model.config.model_type in _RELATIVE:
        return by_distance
    if "decoder_position_ids" in arguments(model):
        return by_position
    inner = getattr(model, "decoder", None)  # of models made of two: arguments go through
    if inner is not None and "position_ids" in arguments(inner):
        return by_position
    return by_length


def arguments(model: Any) -> Any:
    """What a model can be called with, by name."""
    return inspect.signature(model.forward).parameters


def _stepping(prepare: Prepare, forward: Any) -> Any:
    """A step with the inputs that its graph gets, which calls the decoder in its way."""

    def step(
        decoder_input_ids: Any,
        decoder_attention_mask: Any,
        decoder_position_ids: Any = None,
        encoder_outputs: Any = None,
        attention_mask: Any = None,
        past_key_values: Any = None,
    ) -> Any:
        given = {
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": decoder_attention_mask,
            "encoder_outputs": encoder_outputs,
            "past_key_values": past_key_values,
        }
        if attention_mask is not None:
            given["attention_mask"] = attention_mask
        return forward(**prepare(forward, given, decoder_position_ids))

    return step


def _without(_forward: Any, given: dict[str, Any], _position: Any) -> dict[str, Any]:
    return given


def _with_position(_forward: Any, given: dict[str, Any], position: Any) -> dict[str, Any]:
    return {**given, "decoder_position_ids": position}


def _with_length(forward: Any, given: dict[str, Any], position: Any) -> dict[str, Any]:
    import torch
    from transformers import EncoderDecoderCache

    cache = EncoderDecoderCache.from_legacy_cache(given["past_key_values"])
    place = position.reshape(-1)[:1]
    cache.get_seq_length = lambda *_layer: place[0]
    hidden = torch.finfo(torch.float32).min
    seen = given["decoder_attention_mask"][:, None, None, :].to(torch.float32)
    given = {**given, "past_key_values": cache, "decoder_attention_mask": (1.0 - seen) * hidden}
    if "cache_position" in inspect.signature(forward).parameters:
        given["cache_position"] = place
    return given


by_distance = partial(_stepping, _without)
by_position = partial(_stepping, _with_position)
by_length = partial(_stepping, _with_length)
