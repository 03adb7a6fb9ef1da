"""BLIP for question answering: an encoder of image and question, and a decoder of the answer.

The model's own `forward` returns no logits of the answer; its `generate` calls the decoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from workers.optimum_engine.architectures.generic import GenericConfig
from workers.optimum_engine.architectures.patches import SPECS
from workers.optimum_engine.architectures.rows import Row

TASK = "visual-question-answering"
_ASKED = ("pixel_values", "input_ids", "attention_mask")
_WRITTEN = ("decoder_input_ids", "encoder_hidden_states")


class _Part(torch.nn.Module):  # type: ignore[misc]  # without torch's types it is Any
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.config = model.config


class Reader(_Part):
    """What is asked about an image."""

    def forward(self, pixel_values: Any, input_ids: Any, attention_mask: Any) -> dict[str, Any]:
        """The question, as the text encoder sees it with the image."""
        image = self.model.vision_model(pixel_values=pixel_values)[0]
        seen = torch.ones(image.shape[:2], dtype=torch.int64)
        question = self.model.text_encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            encoder_hidden_states=image,
            encoder_attention_mask=seen,
        )
        return {"last_hidden_state": question[0]}


class Writer(_Part):
    """The answer, token by token."""

    def forward(self, decoder_input_ids: Any, encoder_hidden_states: Any) -> dict[str, Any]:
        """The logits of the tokens that come next; Transformers' decoder reads no mask here."""
        found = self.model.text_decoder(
            input_ids=decoder_input_ids,
            encoder_hidden_states=encoder_hidden_states,
            use_cache=False,
        )
        return {"logits": found.logits}


def parts(model: Any, task: str) -> Mapping[str, tuple[Any, Any]] | None:
    """Both components; for other tasks one graph."""
    if task != TASK:
        return None
    return {
        "encoder": (Reader(model), _config(model, _ASKED, "last_hidden_state")),
        "decoder": (Writer(model), _config(model, _WRITTEN, "logits")),
    }


def _config(model: Any, names: Sequence[str], output: str) -> GenericConfig:
    row = Row(
        __package__,
        [TASK],
        inputs=names,
        outputs=[output],
        axes={"encoder_hidden_states": ("batch_size", "sequence_length", "hidden_size")},
        sizes={"hidden_size": model.config.text_config.hidden_size},
    )
    attributes = {"ROW": row, "PATCHING_SPECS": list(SPECS)}
    made: GenericConfig = type("Config", (GenericConfig,), attributes)(model.config, task=TASK)
    return made
