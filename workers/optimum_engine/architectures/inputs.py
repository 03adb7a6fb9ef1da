"""The inputs of models by name: their axes, their values, and the source of their sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from matrix.extensions import FILE
from workers.optimum_engine.architectures.rows import Row
from workers.samples import synthetic
from workers.sources.errors import export_error

AXES: Mapping[str, tuple[str, ...]] = {
    "input_ids": ("batch_size", "sequence_length"),
    "attention_mask": ("batch_size", "sequence_length"),
    "token_type_ids": ("batch_size", "sequence_length"),
    "position_ids": ("batch_size", "sequence_length"),
    "langs": ("batch_size", "sequence_length"),
    "bbox": ("batch_size", "sequence_length", "4"),
    "decoder_input_ids": ("batch_size", "decoder_sequence_length"),
    "pixel_values": ("batch_size", "num_channels", "height", "width"),
    "pixel_mask": ("batch_size", "height", "width"),
    "pixel_values_videos": ("batch_size", "num_frames", "num_channels", "height", "width"),
    "input_points": ("batch_size", "point_batch_size", "nb_points_per_image", "2"),
    "input_labels": ("batch_size", "point_batch_size", "nb_points_per_image"),
    "input_values": ("batch_size", "audio_sequence_length"),
    "input_features": ("batch_size", "nb_max_frames", "feature_size"),
    "noise_sequence": ("batch_size", "nb_max_frames", "noise_channels"),
    "visual_feats": ("batch_size", "visual_seq_length", "visual_feat_dim"),
    "visual_pos": ("batch_size", "visual_seq_length", "4"),
    "flattened_patches": ("batch_size", "patches", "patch_values"),
    "labels": ("batch_size", "decoder_sequence_length"),
    "prompt_depth": ("batch_size", "1", "height", "width"),
    "task_inputs": ("batch_size", "task_length"),
    "past_values": ("batch_size", "context_length", "num_input_channels"),
    "past_time_features": ("batch_size", "past_length", "num_time_features"),
    "past_observed_mask": ("batch_size", "past_length"),
    "future_values": ("batch_size", "prediction_length"),
    "future_time_features": ("batch_size", "prediction_length", "num_time_features"),
    "noise": ("batch_size", "patches"),
    "states": ("batch_size", "steps", "state_dim"),
    "actions": ("batch_size", "steps", "act_dim"),
    "returns_to_go": ("batch_size", "steps", "1"),
    "timesteps": ("batch_size", "steps"),
}
"""`4` is the size itself."""

SIZES: Mapping[str, int] = {
    "batch_size": 2, "sequence_length": 16, "num_choices": 4, "decoder_sequence_length": 12,
    "num_channels": 3, "height": 64, "width": 64, "num_frames": 8, "audio_sequence_length": 16000,
    "nb_max_frames": 128, "feature_size": 80, "task_length": 16, "context_length": 32,
    "num_input_channels": 1, "point_batch_size": 1, "nb_points_per_image": 2,
    "visual_seq_length": 8, "visual_feat_dim": 2048, "patches": 64, "patch_values": 770,
    "noise_channels": 64, "steps": 20,
}  # fmt: skip
"""Default sizes, if neither the request nor a configuration gives one."""

DYNAMIC = ("batch_size", "sequence_length", "decoder_sequence_length", "num_choices")
"""Axes that stay open in a graph: a trace holds for one size of an image, a clip or a sound."""

_TOLD = {
    "height": ("image_size", "img_size", "crop_size"),
    "width": ("image_size", "img_size", "crop_size"),
    "num_channels": ("num_channels", "in_channels", "in_chans"),
    "num_frames": ("num_frames", "frames_per_clip"),
    "feature_size": ("num_mel_bins", "feature_size", "feature_projection_input_dim"),
    "context_length": ("context_length",),
    "num_input_channels": ("num_input_channels",),
    "num_time_features": ("num_time_features",),
    "prediction_length": ("prediction_length",),
    "visual_feat_dim": ("visual_feat_dim",),
    "noise_channels": ("model_in_channels",),
    "state_dim": ("state_dim",),
    "act_dim": ("act_dim",),
}  # fmt: skip
_WITHIN = (
    "vision_config", "backbone_config", "encoder_config", "encoder", "audio_config",
)  # fmt: skip
"""Configurations inside others that tell the same sizes."""


def axes(row: Row, name: str, task: str) -> tuple[str, ...]:
    """The axes of an input."""
    found = tuple(row.axes.get(name) or AXES.get(name, ()))
    if not found:
        raise export_error(
            f"nothing tells the axes of the input '{name}'", f"add them to `axes` in the {FILE}"
        )
    if task == "multiple-choice":
        return (found[0], "num_choices", *found[1:])
    return found


def told(config: Any, axis: str) -> int | None:
    """The size that a configuration gives."""
    if axis == "past_length":  # of series that are compared with their own past
        return int(config.context_length + max(config.lags_sequence))
    for part in _parts(config):
        for name in _TOLD.get(axis, ()):
            value = getattr(part, name, None)
            if isinstance(value, list | tuple) and value and axis in {"height", "width"}:
                value = value[-1 if axis == "width" else 0]
            if isinstance(value, dict):
                value = value.get(axis)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _parts(config: Any) -> Iterator[Any]:
    yield config
    for name in _WITHIN:
        if hasattr(part := getattr(config, name, None), "to_dict"):
            yield from _parts(part)


def value(name: str, shape: tuple[int, ...], config: Any) -> Any:
    """A tensor for an input of a trace: the values of the first synthetic sample."""
    import torch

    dtype = "int64" if _WHOLE.search(name) else "float32"
    return torch.from_numpy(synthetic.value(name, shape, dtype, config, 0))


_WHOLE = re.compile("mask$|_ids$|^(input_labels|langs|timesteps|bbox|task_inputs)$")
"""Inputs that take whole numbers."""
