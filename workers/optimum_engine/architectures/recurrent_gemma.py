"""RecurrentGemma: the scaling of its recurrence, which Transformers leaves out of a trace."""

from __future__ import annotations

from typing import Any

import torch

from workers.optimum_engine.architectures.patches import replacing


def scan(layer: Any, hidden_states: Any, recurrent_gate: Any, reset: Any, **more: Any) -> Any:
    """The recurrence over the tokens, with the scaling that a trace lacks."""
    if torch.jit.is_tracing():
        scale = torch.sqrt(1 - recurrent_gate * recurrent_gate)
        hidden_states = hidden_states * torch.where(reset, torch.ones_like(scale), scale)
    own = type(layer)._rnn_scan
    return own(layer, hidden_states, recurrent_gate, reset, **more)


PATCHES = replacing({"RecurrentGemmaRglru": {"_rnn_scan": scan}})
