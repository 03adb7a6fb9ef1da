"""The model; `register` makes its classes known, the row beside this file does the rest."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import ImageClassifierOutput


class RingConfig(PretrainedConfig):
    model_type = "ringnet"

    def __init__(self, image_size: int = 16, width: int = 8, **kwargs: Any) -> None:
        self.image_size = image_size
        self.width = width
        super().__init__(**kwargs)


class RingNet(PreTrainedModel):
    config_class = RingConfig

    def __init__(self, config: RingConfig) -> None:
        super().__init__(config)
        self.rings = torch.nn.Conv2d(3, config.width, 4, stride=4)
        self.head = torch.nn.Linear(config.width, config.num_labels)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        for weights in module.parameters(recurse=False):
            torch.nn.init.normal_(weights, std=0.3)

    def forward(self, pixel_values: torch.Tensor, **_ignored: Any) -> ImageClassifierOutput:
        seen = torch.relu(self.rings(pixel_values)).mean((2, 3))
        return ImageClassifierOutput(logits=self.head(seen))


def register() -> None:
    AutoConfig.register("ringnet", RingConfig)
    AutoModelForImageClassification.register(RingConfig, RingNet)
