"""The reference for verifying generation: a prompt, and the tokens that PyTorch generates for it.

PyTorch runs the whole model again for every token, without a cache, so that the reference cannot
share an error in the handling of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.composition import Composition
from workers.generation import COUNT, FILE, TOKENS
from workers.optimum_engine.architectures import shapes
from workers.samples.loops import Ports, prompt_of, words_of
from workers.sources.errors import export_error, one_line

LENGTH = 8
"""Tokens of a prompt: fewer than a graph of fixed shapes takes, so that padding is verified too."""
Make = Callable[[str, Mapping[str, int]], dict[str, Any]]
"""Makes example inputs of a component, with these sizes."""


def write(model: Any, record: Composition, ports: Ports, make: Make, out: Path) -> None:
    """Write the prompt and PyTorch's tokens beside the components."""
    import numpy as np

    if record.loop is None:
        return
    sizes = shapes.base_shapes(model.config, out, {"sequence_length": LENGTH})
    loop = record.loop
    names = [one.name for one in record.components if one.name not in {loop.begin, loop.step}]
    first = {name: make(name, sizes) for name in names}
    tokens = [_start(model)] if first else words_of(make(loop.begin, sizes), loop)
    prompt = prompt_of(first, tokens, ports, loop)
    inputs = {key: value for one in first.values() for key, value in one.items()}
    found = _generated(model, inputs, tokens)
    arrays: dict[str, Any] = {**prompt, TOKENS: np.asarray(found, np.int64)}
    np.savez(out / FILE, **{name: arrays[name] for name in sorted(arrays)})


def _start(model: Any) -> int:
    """The token that every text of an encoder-decoder begins with."""
    for part in (model.config, getattr(model.config, "decoder", None)):
        for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
            found = getattr(part, name, None)
            if isinstance(found, int):
                return found
    return 0


def _generated(model: Any, inputs: Mapping[str, Any], prompt: Sequence[int]) -> list[int]:
    """The most likely tokens, one after the other."""
    import torch

    for module in model.modules():  # the export has turned it on in all of them
        if hasattr(getattr(module, "config", None), "use_cache"):
            module.config.use_cache = False
    tokens = list(prompt)
    given = {name: torch.as_tensor(value) for name, value in inputs.items()}
    name = "decoder_input_ids" if given else "input_ids"
    with torch.inference_mode():
        for _ in range(COUNT):
            try:
                found = model(**given, **{name: torch.tensor([tokens])}, use_cache=False)
            except (TypeError, ValueError, RuntimeError, KeyError, IndexError) as error:
                text = f"PyTorch cannot generate with this model: {one_line(error)}"
                raise export_error(text, "export it for the task without `-with-past`") from error
            tokens.append(int(found.logits[0, -1].argmax()))
    return tokens[len(prompt) :]
