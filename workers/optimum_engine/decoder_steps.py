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
from typing import Any

_RELATIVE = ("t5", "mt5", "longt5", "umt5", "pix2struct")


def way(model: Any) -> Any:
    """How the decoder of a model gets its positions."""
    if model.config.model_type in _RELATIVE:
        return by_distance
    if "decoder_position_ids" in arguments(model):
        return _by_position
    inner = getattr(model, "decoder", None)  # of models made of two: arguments go through
    if inner is not None and "position_ids" in arguments(inner):
        return _by_position
    return _by_length


def arguments(model: Any) -> Any:
    """What a model can be called with, by name."""
    return inspect.signature(model.forward).parameters


def by_distance(forward: Any) -> Any:
    """A step without positions."""

    def step(
        decoder_input_ids: Any,
        decoder_attention_mask: Any,
        encoder_outputs: Any = None,
        attention_mask: Any = None,
        past_key_values: Any = None,
    ) -> Any:
        return forward(
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
        )

    return step


def _by_position(forward: Any) -> Any:
    def step(
        decoder_input_ids: Any,
        decoder_attention_mask: Any,
        decoder_position_ids: Any,
        encoder_outputs: Any = None,
        attention_mask: Any = None,
        past_key_values: Any = None,
    ) -> Any:
        more = {} if attention_mask is None else {"attention_mask": attention_mask}
        return forward(
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            decoder_position_ids=decoder_position_ids,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            **more,
        )

    return step


def _by_length(forward: Any) -> Any:
    def step(
        decoder_input_ids: Any,
        decoder_attention_mask: Any,
        decoder_position_ids: Any,
        encoder_outputs: Any = None,
        attention_mask: Any = None,
        past_key_values: Any = None,
    ) -> Any:
        import torch
        from transformers import EncoderDecoderCache

        cache = EncoderDecoderCache.from_legacy_cache(past_key_values)
        place = decoder_position_ids.reshape(-1)[:1]
        cache.get_seq_length = lambda *_layer: place[0]
        hidden = torch.finfo(torch.float32).min
        mask = (1.0 - decoder_attention_mask[:, None, None, :].to(torch.float32)) * hidden
        more = {} if attention_mask is None else {"attention_mask": attention_mask}
        if "cache_position" in inspect.signature(forward).parameters:
            more["cache_position"] = place
        return forward(
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=mask,
            encoder_outputs=encoder_outputs,
            past_key_values=cache,
            **more,
        )

    return step
