"""Rendered pictures and sounds in the shape and range of an input."""

from __future__ import annotations

from typing import Any

from workers.samples.material import images, sounds

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the usual normalization of pixels, the one with the widest range."""
_CHANNELS = (1, 3, 4)
_SIDE = 1024
_FRAME = 400
"""Values of a sound that its features for one moment see."""
_STEP = 1 / 256
"""Features are rounded: the last bits of a logarithm differ between processors."""


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether a shape is that of images in a usual layout, large enough for one."""
    if len(shape) not in {4, 5}:
        return False
    return _channel(shape) is not None and min(sides(shape)) >= 8


def sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The height and width of images of a shape."""
    return shape[-3:-1] if _last(shape) else shape[-2:]


def _last(shape: tuple[int, ...]) -> bool:
    return shape[-1] in _CHANNELS and shape[-3] not in _CHANNELS


def _channel(shape: tuple[int, ...]) -> int | None:
    """The axis of the colors: before or after the sides, in a clip also before the frames."""
    rank = len(shape)
    for axis in (rank - 3, rank - 1, *((1,) if rank == 5 else ())):
        if shape[axis] in _CHANNELS:
            return int(axis)
    return None


def pixels(shape: tuple[int, ...], number: int, *, whole: bool) -> Any:
    """Images as bytes (`whole`) or normalized; frames of a clip move over one scene."""
    import numpy as np

    axis = _channel(shape) if len(shape) > 3 else (len(shape) - 3 if shape[0] in _CHANNELS else -1)
    if len(shape) == 3 and axis == -1 and shape[-1] not in _CHANNELS:
        axis = None  # grey, without an axis of colors
    if axis is None and len(shape) > 3:
        return field(np.random.default_rng([number, 4]), shape)
    axis = len(shape) - 1 if axis == -1 else axis
    channels = 1 if axis is None else shape[axis]
    rest = shape if axis is None else (*shape[:axis], *shape[axis + 1 :])
    before, (height, width) = rest[:-2], rest[-2:]
    frames = before[-1] if len(before) > 1 else 1
    shift = max(width // 16, 1)
    found = []
    for one in range(int(np.prod(before, dtype=int))):
        row, frame = divmod(one, frames)
        clip = images.scene(number * 3 + row, height, width + (frames - 1) * shift)
        found.append(clip[:, frame * shift : frame * shift + width])
    scenes = np.stack(found)
    if channels == 1:
        scenes = np.round(scenes @ np.array([0.299, 0.587, 0.114]))[..., None]
    elif channels == 4:
        scenes = np.concatenate([scenes, np.full((*scenes.shape[:-1], 1), 255)], -1)
    if not whole:
        mean, deviation = np.array([*MEAN, 0.45]), np.array([*DEVIATION, 0.225])
        if channels == 1:
            mean, deviation = mean[-1:], deviation[-1:]
        scenes = (scenes / 255 - mean[:channels]) / deviation[:channels]
    scenes = scenes.reshape((*rest, channels))
    return scenes[..., 0] if axis is None else np.moveaxis(scenes, -1, axis)


def field(random: Any, shape: tuple[int, ...]) -> Any:
    """Fields over the last two axes that vary as images do, mean 0, deviation 1."""
    import numpy as np

    count = int(np.prod(shape[:-2], dtype=int))
    return np.stack(
        [images.texture(random, *shape[-2:]) if min(shape[-2:]) > 1
         else random.normal(size=shape[-2:]) for _ in range(count)]
    ).reshape(shape)  # fmt: skip


def waves(shape: tuple[int, ...], number: int) -> Any:
    """Sounds between -1 and 1 along the last axis."""
    import numpy as np

    count = int(np.prod(shape[:-1], dtype=int))
    made = [sounds.wave(number * 3 + one, shape[-1]) for one in range(count)]
    return np.stack(made).reshape(shape) / 32768


def mel(shape: tuple[int, ...], number: int) -> Any:
    """Logarithms of the energy in bands, mean 0 and deviation 1; time is the longer axis."""
    import numpy as np

    *before, first, second = shape
    frames, bands = max(first, second), min(first, second)
    step = 160
    length = (frames - 1) * step + _FRAME
    edges = np.unique(np.round(np.geomspace(2, _FRAME / 2 + 1, bands + 1)).astype(int))
    window = np.hanning(_FRAME)
    starts = np.arange(frames) * step
    found = []
    for one in range(int(np.prod(before, dtype=int))):
        wave = sounds.wave(number * 3 + one, length) / 32768
        parts = np.lib.stride_tricks.sliding_window_view(wave, _FRAME)[starts]
        power = np.abs(np.fft.rfft(parts * window)) ** 2
        sums = np.add.reduceat(power[:, : edges[-1]], edges[:-1], axis=1)
        energy = np.log10(np.maximum(sums, 1e-7))
        energy = images.enlarged(energy, frames, bands)
        energy = (energy - energy.mean()) / max(energy.std(), 1e-6)
        found.append(energy if first == frames else energy.T)
    return np.round(np.stack(found).reshape(shape) / _STEP) * _STEP


def side(config: Any) -> int:
    """The side of the images in whose pixels points and boxes are given."""
    for part in (config, *(getattr(config, name, None)
                           for name in ("prompt_encoder_config", "vision_config"))):  # fmt: skip
        found = getattr(part, "image_size", None)
        if isinstance(found, int):
            return found
    return _SIDE
