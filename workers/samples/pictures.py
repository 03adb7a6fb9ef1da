"""Pixels: the model's own image processor on rendered pictures."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.samples import datasets
from workers.samples.material import images
from workers.sources.errors import export_error

_AS_IT_IS = ("do_resize", "do_center_crop", "do_pad", "do_image_splitting")
_ONE_SIZE = frozenset({
    "aimv2", "aimv2_vision_model", "altclip", "blip", "chinese_clip", "chinese_clip_vision_model",
    "clip", "clip_vision_model", "deit", "git", "groupvit", "ijepa", "metaclip_2", "mgp-str", "sam",
    "sam_hq", "siglip", "siglip_vision_model", "vit", "vit_mae", "vit_msn", "x_clip",
})  # fmt: skip
"""Models that take images of the size in their configuration only."""
_CLIP = 4
"""Frames that make a clip; fewer images are seen side by side."""
Row = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


class Pictures:
    """The inputs that are images."""

    origin = "the model's image processor on rendered pictures"

    @staticmethod
    def takes(shapes: Shapes) -> bool:
        """Whether a graph sees images."""
        return "pixel_values" in shapes or "flattened_patches" in shapes

    @staticmethod
    def load(folder: Path, remote_code: bool) -> Any:
        """The image processor beside a model."""
        from transformers import AutoImageProcessor

        found = AutoImageProcessor.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=remote_code, use_fast=False
        )
        if hasattr(found, "apply_ocr"):
            found.apply_ocr = False  # the words of a page are another input
        return found

    def __init__(
        self,
        processor: Any,
        _task: str,
        config: Any,
        shapes: Shapes,
        file: str,
        given: Sequence[Path] | None,
    ) -> None:
        self._processor, self._shapes, self._file, self._given = processor, shapes, file, given
        self._shape = shapes.get("pixel_values", ())
        known = inspect.signature(processor.preprocess).parameters
        self._as_it_is = {name: False for name in _AS_IT_IS if name in known}
        self._fits = False
        """Whether the processor makes the planned size of any picture."""
        self._several = len(self._shape) == 5 and self._shape[1] < _CLIP
        """Whether the image is one of several, or a tile of a larger one."""
        if not self._shape or self._several:
            return
        probes = [self._frames(images.scene(0, *size)) for size in ((56, 72), (72, 56))]
        found = [self._made(one, {}).shape for one in probes]
        self._fits = {self._shape[1:]} == set(found)
        told = getattr(getattr(config, "vision_config", config), "image_size", None)
        size = tuple(told) if isinstance(told, list | tuple) else (told, told)
        made = found[0][-2:]
        if getattr(config, "model_type", "") in _ONE_SIZE and told and made != size:
            raise export_error(
                f"{file} makes images of {made[0]} x {made[1]} pixels, but the model takes "
                f"{size[0]} x {size[1]}",
                "put the image processor of this model beside it, or delete the one that is there",
            )

    def row(self, number: int) -> Row:
        """The inputs of the picture of this number."""
        if self._given:
            picture = datasets.picture(self._given[number % len(self._given)])
        else:
            picture = images.picture(number)
        if not self._shape:
            count = self._shapes["flattened_patches"][-2]
            made = self._processor(_image(picture), max_patches=count, return_tensors="np")
            return {name: made[name][0] for name in ("flattened_patches", "attention_mask")}
        if self._fits:
            return self._masked(self._made(self._frames(picture), {}))
        high, wide = self._size()
        if "pixel_mask" in self._shapes:  # its own aspect, with padding
            scale = min(high / picture.shape[0], wide / picture.shape[1])
            high, wide = (max(round(one * scale), 1) for one in picture.shape[:2])
        frames = [_image(one).resize((wide, high)) for one in self._frames(picture)]
        if not self._several:
            pixels = self._made(frames, self._as_it_is)
            if len(self._shape) == 2 or pixels.shape[-2:] == (high, wide):
                return self._masked(pixels)
        return self._masked(self._normalized(frames))

    def _size(self) -> tuple[int, int]:
        """The planned height and width."""
        if len(self._shape) > 2:
            return self._shape[-2], self._shape[-1]
        side = math.isqrt(self._shape[0]) * int(self._processor.patch_size)  # a square of patches
        return side, side

    def _frames(self, picture: Any) -> list[Any]:
        """A picture, or what a camera sees that moves over it."""
        if len(self._shape) != 5 or self._several:
            return [picture]
        wide = picture.shape[1] * 3 // 4
        starts = range(self._shape[1])
        step = max((picture.shape[1] - wide) // self._shape[1], 1)
        return [picture[:, one * step : one * step + wide] for one in starts]

    def _made(self, frames: Sequence[Any], how: Mapping[str, bool]) -> Any:
        """The pixels of one item from the processor."""
        import numpy as np

        pictures = [_image(one) for one in frames]
        given = [pictures] if len(pictures) > 1 else pictures
        pixels = np.asarray(self._processor(given, return_tensors="np", **how)["pixel_values"])
        return pixels if len(self._shape) == 2 else pixels[0]

    def _normalized(self, frames: Sequence[Any]) -> Any:
        """Pixels by the numbers of the processor alone, which would make another size of them."""
        import numpy as np

        scaled = np.stack([np.asarray(one) for one in frames]) * self._processor.rescale_factor
        if getattr(self._processor, "do_normalize", False):
            scaled = (scaled - self._processor.image_mean) / self._processor.image_std
        pixels = np.moveaxis(scaled, -1, -3)
        return pixels if len(frames) > 1 else pixels[0]

    def _masked(self, pixels: Any) -> Row:
        """Pixels in the planned shape, with a mask for padding."""
        import numpy as np

        shape = self._shape if len(self._shape) == 2 else self._shape[1:]
        if pixels.ndim > 1 and pixels.shape[-3:-2] != shape[-3:-2]:
            raise export_error(
                f"{self._file} makes images of {pixels.shape[-3]} channels, but the model takes "
                f"{shape[-3]}",
                "put the image processor of this model beside it, or delete the one that is there",
            )
        if pixels.shape[-2:] == shape[-2:]:
            full, mask = np.broadcast_to(pixels, shape), np.ones(shape[-2:])
        else:
            full, mask = np.zeros(shape, np.float32), np.zeros(shape[-2:])
            high, wide = pixels.shape[-2:]
            full[..., :high, :wide] = pixels
            mask[:high, :wide] = 1
        found = {"pixel_values": full, "pixel_mask": mask}
        return {name: one for name, one in found.items() if name in self._shapes}


def _image(picture: Any) -> Any:
    from PIL import Image

    return picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
