"""The sizes of inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from machine.files import read_json
from workers.engine import StageError
from workers.samples import synthetic
from workers.sources import model_file, runtime
from workers.sources.errors import quantize_error

SHAPES = (
    "batch_size", "sequence_length", "num_choices", "width", "height", "num_channels",
    "point_batch_size", "nb_points_per_image", "visual_seq_length", "feature_size",
    "nb_max_frames", "audio_sequence_length", "past_sequence_length",
)  # fmt: skip
"""The shape names of Optimum's dummy input generators, and the size of a decoder's cache."""
SEQUENCE = 128
"""Tokens of a text input unless the catalog says otherwise or the model takes fewer."""


_IMAGES = ((224, 224), (640, 640), (48, 320), (32, 32), (512, 512))
"""Heights and widths, tried in this order if neither a ready file nor the catalog gives them."""
_TEXT_PARTS = ("text_config", "decoder")
_LIMITS = ("max_position_embeddings", "n_positions", "max_target_positions")


def base_shapes(
    config: Any, side_files: Path, asked: Mapping[str, int], *, padded: bool = False
) -> dict[str, int]:
    """Sizes for Optimum's dummy inputs: one item, the model's own sizes, then the catalog's."""
    shapes = {"batch_size": 1, "sequence_length": sequence(config, padded=padded)}
    if image := image_size(side_files):
        shapes["height"], shapes["width"] = image
    return {**shapes, **asked}


def past(config: Any, sizes: Mapping[str, int], *, alone: bool) -> int:
    """The size of a cache: with the new token, as many positions as a text input has; a decoder
    without an encoder keeps the prompt in it besides."""
    if not alone:
        return sizes["sequence_length"] - 1
    limit = sequence(config, padded=True)
    return max(min(2 * sizes["sequence_length"], limit), sizes["sequence_length"] + 1) - 1


def sequence(config: Any, *, padded: bool = False) -> int:
    """The usual length, within the model's positions; `padded`: the model's full length.

    Some models (RoBERTa) count positions from an offset: a power of two below the limit is safe.
    """
    limits = [
        value
        for part in (config, *(getattr(config, name, None) for name in _TEXT_PARTS))
        for name in _LIMITS
        if isinstance(value := getattr(part, name, None), int) and value >= 4
    ]
    if not limits:
        return SEQUENCE
    limit = min(limits)
    if padded:
        return limit
    return min(SEQUENCE, 1 << ((limit - 2).bit_length() - 1))


def image_size(side_files: Path) -> tuple[int, int] | None:
    """Height and width of the images that a model's preprocessor makes."""
    try:
        config = read_json(side_files / "preprocessor_config.json")
    except (OSError, ValueError):
        return None
    for key in ("crop_size", "size") if config.get("do_center_crop", True) else ("size",):
        size = config.get(key)
        if isinstance(size, int):
            return size, size
        if isinstance(size, dict) and {"height", "width"} <= size.keys():
            return int(size["height"]), int(size["width"])
        if isinstance(size, dict) and "shortest_edge" in size:
            return int(size["shortest_edge"]), int(size["shortest_edge"])
    return None


def settled(folder: Path, asked: Mapping[str, int]) -> dict[str, int]:
    """The sizes of open axes with which a ready file runs. Raises `StageError` if none do."""
    file = folder / model_file.MODEL
    ready, wanted = runtime.session(file), runtime.signature(file)
    failed: StageError | None = None
    for sizes in _candidates(wanted, asked):
        try:
            runtime.run(ready, synthetic.sample(wanted, sizes, None, 0))
        except StageError as error:
            failed = failed or error
        else:
            return sizes
    reason = failed.args[0] if failed else ""
    raise quantize_error(
        f"this ONNX file runs with none of the usual sizes: {reason}",
        "give the sizes of its open axes as shapes in the catalog, or a dataset",
    )


def _candidates(wanted: runtime.Signature, asked: Mapping[str, int]) -> Iterator[dict[str, int]]:
    sides = [size for port in wanted.values() if len(port.shape) == 4 for size in port.shape[2:]]
    if all(isinstance(size, int) and size > 0 for size in sides):
        yield {"height": 1, "width": 1, **asked}
        return
    seen = []
    for height, width in _IMAGES:
        sizes = {"height": height, "width": width, **asked}
        if sizes not in seen:
            seen.append(sizes)
            yield sizes
