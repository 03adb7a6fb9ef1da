"""The inputs of models by name: their axes, their values, and the source of their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from matrix.extensions import FILE
from workers.optimum_engine.architectures.rows import Row
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
    """A plausible random tensor for an input, from the seeded generators."""
    import torch

    if name.endswith("mask") or name == "input_labels":
        return torch.ones(shape, dtype=torch.int64)
    if name in {"token_type_ids", "langs"}:
        return torch.zeros(shape, dtype=torch.int64)
    if name.endswith("position_ids") or name == "timesteps":
        return torch.arange(shape[-1]).expand(shape).clone()
    if name == "bbox":
        corners = torch.randint(0, 500, (*shape[:-1], 2))
        return torch.cat([corners, corners + torch.randint(1, 400, (*shape[:-1], 2))], -1)
    if name.endswith("_ids") or name == "task_inputs":
        return _tokens(shape, config)
    return torch.rand(shape) * (32 if name == "input_points" else 2) - 1


_SPECIAL = 8
"""The first tokens of a vocabulary often mean something else than text."""


def _tokens(shape: tuple[int, ...], config: Any) -> Any:
    """Random tokens of text, with an end where a classifier looks for it."""
    import torch

    parts = [config, *(getattr(config, name, None) for name in ("text_config", "decoder"))]
    sizes = [size for part in parts if isinstance(size := getattr(part, "vocab_size", None), int)]
    size = sizes[0] if sizes else 64
    found = torch.randint(min(_SPECIAL, size - 1), size, shape)
    end = getattr(config, "eos_token_id", None)
    if isinstance(end, int) and getattr(config, "is_encoder_decoder", False):
        found[found == end] = size - 1
        found[..., -1] = end
    return found
