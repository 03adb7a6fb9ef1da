"""SAM 2 on single images: the image is encoded once, masks are computed for every prompt.

    vision    pixel_values -> image_embeddings, high_resolution_0, high_resolution_1
    mask      those, input_points, input_labels -> iou_scores, pred_masks

Checkpoints are named after the model for videos, whose memory single images do not need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from workers.optimum_engine.architectures.generic import GenericConfig
from workers.optimum_engine.architectures.patches import SPECS
from workers.optimum_engine.architectures.rows import Row

_LEVELS = ("high_resolution_0", "high_resolution_1", "image_embeddings")
"""From the finest to the coarsest, as the model lists them."""
_PROMPTS = ("input_points", "input_labels")
_MASKS = ("iou_scores", "pred_masks")


class _Part(torch.nn.Module):  # type: ignore[misc]  # without torch's types it is Any
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.config = model.config


class Vision(_Part):
    """The image side."""

    def forward(self, pixel_values: Any) -> dict[str, Any]:
        """The features of an image, at every level."""
        found = self.model.get_image_embeddings(pixel_values)
        return dict(zip(_LEVELS, found, strict=True))


class Mask(_Part):
    """The side of the prompts."""

    def forward(
        self,
        image_embeddings: Any,
        high_resolution_0: Any,
        high_resolution_1: Any,
        input_points: Any,
        input_labels: Any,
    ) -> dict[str, Any]:
        """Three masks for every prompt, and how well each fits."""
        found = self.model(
            image_embeddings=[high_resolution_0, high_resolution_1, image_embeddings],
            input_points=input_points,
            input_labels=input_labels,
        )
        return {name: found[name] for name in _MASKS}


def parts(model: Any, task: str) -> Mapping[str, tuple[Any, Any]]:
    """Both components; they share the model."""
    return {
        "vision": (Vision(model), _config(model, task, ["pixel_values"], _LEVELS)),
        "mask": (Mask(model), _config(model, task, [*_LEVELS, *_PROMPTS], _MASKS)),
    }


def _config(model: Any, task: str, names: Sequence[str], outputs: Sequence[str]) -> GenericConfig:
    vision = model.config.vision_config
    width = vision.fpn_hidden_size
    levels = zip(
        _LEVELS, (width // 8, width // 4, width), vision.backbone_feature_sizes, strict=True
    )
    axes = {name: ("batch_size", *map(str, (channels, *size))) for name, channels, size in levels}
    size = model.config.prompt_encoder_config.image_size
    row = Row(
        __package__,
        [task],
        inputs=names,
        outputs=outputs,
        axes=axes,
        sizes={"height": size, "width": size},
    )
    attributes = {"ROW": row, "PATCHING_SPECS": list(SPECS)}
    made: GenericConfig = type("Config", (GenericConfig,), attributes)(model.config, task=task)
    return made
