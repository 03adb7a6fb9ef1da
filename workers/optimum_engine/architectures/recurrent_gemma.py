"""RecurrentGemma: the scaling of its recurrence, which Transformers leaves out of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from optimum.exporters.onnx.model_patcher import ModelPatcher

_NAME = "_rnn_scan"


def scan(
    own: Any, hidden_states: Any, recurrent_gate: Any, reset: Any, recurrent_states: Any
) -> Any:
    """`_rnn_scan` of a layer, of inputs that are scaled although they are traced."""
    if torch.jit.is_tracing():
        scale = torch.sqrt(1 - recurrent_gate * recurrent_gate)
        hidden_states = hidden_states * torch.where(reset, torch.ones_like(scale), scale)
    return own(
        hidden_states=hidden_states,
        recurrent_gate=recurrent_gate,
        reset=reset,
        recurrent_states=recurrent_states,
    )


class Patcher(ModelPatcher):  # type: ignore[misc]  # Optimum has no types
    """The recurrence of every layer replaced."""

    def __enter__(self) -> None:
        super().__enter__()
        for layer in self._layers():
            setattr(layer, _NAME, partial(scan, getattr(layer, _NAME)))

    def __exit__(self, *error: object) -> None:
        for layer in self._layers():
            delattr(layer, _NAME)
        super().__exit__(*error)

    def _layers(self) -> Iterator[Any]:
        return (module for module in self._model.modules() if hasattr(module, _NAME))


PATCHES = {"_MODEL_PATCHER": Patcher}
