"""Decoders with a cache: one graph reads the prompt, another computes a step.

Optimum exports a decoder with past as one graph, whose cache may be empty. A graph with fixed
shapes takes a fixed number of tokens, so here there are two graphs: `prefill` takes the prompt and
returns the cache, `decode` takes one token and the cache. An encoder-decoder has `decoder` and
`decoder_with_past`.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from matrix.abilities import WITH_PAST

BEGIN, STEP = "prefill", "decode"
_BEGIN, _STEP = "decoder", "decoder_with_past"
_MODEL = "_model"
"""The end of Optimum's names."""
Parts = dict[str, tuple[Any, Any]]


def generates(task: str) -> bool:
    """Whether a task asks for a decoder with its cache; features have no next token."""
    plain = task.removesuffix(WITH_PAST)
    return task != plain and plain not in {"feature-extraction", "default"}


def loop_of(names: Mapping[str, Any]) -> tuple[str, str] | None:
    """The components that read the prompt and compute the steps; None: there is no loop."""
    for pair in ((BEGIN, STEP), (_BEGIN, _STEP)):
        if set(pair) <= names.keys():
            return pair
    return None


def split(task: str, found: Parts) -> Parts:
    """The graphs of a model with past, from those that Optimum lays out."""
    if not generates(task):
        return found
    if list(found) == ["model"]:
        model, config = found["model"]
        base = type(config)
        common = {"task": config.task, "use_past": True, "preprocessors": config._preprocessors}
        begin = base(model.config, **common, use_past_in_inputs=False)
        step = base(model.config, **common, use_past_in_inputs=True)
        return {BEGIN: (model, _positioned(begin, model)), STEP: (model, _positioned(step, model))}
    if (name := _STEP + _MODEL) in found:
        model, config = found[name]
        return {**found, name: (model, _stepping(config, model))}
    return found


def _positioned(config: Any, model: Any) -> Any:
    """The configuration with the input `position_ids`, if the model takes one."""
    inputs = dict(config.inputs)
    if "position_ids" in inputs or "position_ids" not in arguments(model):
        return config
    inputs["position_ids"] = {0: "batch_size", 1: "sequence_length"}
    return _with(config, inputs, None)


def _stepping(config: Any, model: Any) -> Any:
    """The configuration of a step with a mask for the cache, and the position of the token."""
    inputs = dict(config.inputs)
    inputs["decoder_attention_mask"] = {0: "batch_size", 1: "past_decoder_sequence_length + 1"}
    how = way(model)
    if how is not by_distance:
        inputs["decoder_position_ids"] = {0: "batch_size"}
    return _with(config, inputs, how)


def _with(config: Any, inputs: Mapping[str, Any], how: Any) -> Any:
    """A configuration like this one with other inputs, and with a way to call the model."""
    base = type(config)
    asked = dict(inputs)

    def dummies(_self: Any, framework: str = "pt", **sizes: Any) -> Any:
        return _completed(config.generate_dummy_inputs(framework=framework, **sizes), asked)

    @contextmanager
    def patched(self: Any, model: Any, **more: Any) -> Iterator[Any]:
        with base.patch_model_for_export(self, model, **more) as patcher:
            before = model.forward
            if how is not None:
                model.forward = how(before)
            try:
                yield patcher
            finally:
                model.forward = before

    def plain_forward(self: Any, model: Any) -> Any:
        forward = base.patch_model_for_export(self, model, model_kwargs={}).patched_forward
        return forward if how is None else how(forward)

    names = dict(config.torch_to_onnx_input_map)
    if "decoder_position_ids" in asked:
        names["decoder_position_ids"] = "position_ids"
    made = type(
        base.__name__,
        (base,),
        {
            "inputs": property(lambda _self: asked),
            "torch_to_onnx_input_map": property(lambda _self: names),
            "generate_dummy_inputs": dummies,
            "patch_model_for_export": patched,
            "plain_forward": plain_forward,
        },
    )
    changed: Any = object.__new__(made)
    changed.__dict__.update(config.__dict__)
    return changed


def _completed(made: dict[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The example inputs with those that Optimum does not make."""
    import torch

    if "position_ids" in inputs and "position_ids" not in made:
        count = made["input_ids"].shape[1]
        made["position_ids"] = torch.arange(count).repeat(made["input_ids"].shape[0], 1)
    if "decoder_attention_mask" in inputs:
        length = made["past_key_values"][0][0].shape[2]
        batch = made["decoder_input_ids"].shape[0]
        made["decoder_attention_mask"] = torch.ones((batch, length + 1), dtype=torch.int64)
        if "decoder_position_ids" in inputs:
            made["decoder_position_ids"] = torch.full((batch, 1), length, dtype=torch.int64)
    return made


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


def _step_with(prepare: Prepare, forward: Any) -> Any:
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


by_distance = partial(_step_with, lambda _forward, given, _position: given)
by_position = partial(
    _step_with, lambda _forward, given, position: {**given, "decoder_position_ids": position}
)
by_length = partial(_step_with, _with_length)
