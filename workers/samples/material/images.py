"""Images with the statistics of photographs: edges at all scales, light and shadow, texture, text.

A scene is a background of light that falls off over a surface, then objects in front of each other
("dead leaves": many small ones, few large ones, as sizes are in photographs), then at most one
motif: a face, a sheet with lines of text, or a few large shapes.

Letters are strokes (`letters.toml`), and lines of text are made of them: the same everywhere,
without a font file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

SIZES = (
    (240, 320), (320, 240), (216, 384), (256, 256), (288, 384), (224, 320), (384, 288), (224, 224),
    (320, 216), (192, 256), (384, 256), (320, 320),
)  # fmt: skip
"""Heights and widths of pictures, in the aspects of cameras and pages."""
_DETAIL = 384
"""Scenes are computed with at most so many rows or columns; larger ones are enlarged."""
_ROWS, _COLUMNS = 9, 5
_SYLLABLES = (
    *("an", "ber", "ca", "do", "el", "fa", "gri", "ho", "in", "jo", "ka", "lu", "mer", "no", "or"),
    *("pe", "qui", "ra", "sto", "ti", "un", "ve", "wo", "xa", "yen", "za", "light", "stone"),
    *("river", "market", "street", "open", "north", "12", "40", "7", "365", "Exit", "Station"),
)


def picture(number: int) -> Any:
    """The picture of this number in a size of its own: bytes in rows, columns and RGB."""
    return scene(number, *SIZES[number * 5 % len(SIZES)])


def scene(number: int, height: int, width: int) -> Any:
    """The scene of this number in any size."""
    import numpy as np

    scale = min(1.0, _DETAIL / max(height, width))
    found = _rendered(number, max(round(height * scale), 8), max(round(width * scale), 8))
    if found.shape[:2] != (height, width):
        found = np.round(enlarged(found.astype(np.float64), height, width)).astype(np.uint8)
    return found


@lru_cache(maxsize=128)
def _rendered(number: int, rows: int, columns: int) -> Any:
    """Kept for the next model: all see the same scenes."""
    import numpy as np

    random = np.random.default_rng([20, number])
    grain = texture(random, rows, columns)
    image = _background(random, rows, columns)
    _leaves(image, random, grain, (120, 12, 300, 40)[number % 4])
    motif = (None, _face, None, _sheet, _shapes)[number % 5]
    if motif is not None:
        motif(image, random)
    image *= 0.55 + 0.6 * _ramp(random, rows, columns)[..., None]
    image += random.uniform(0.01, 0.06) * grain[::-1, ::-1, None]
    found = np.round(_stretched(image, random) * 255).astype(np.uint8)
    found.flags.writeable = False
    return found


def texture(random: Any, rows: int, columns: int, power: float = 1.0) -> Any:
    """A field whose amplitude falls with the frequency, mean 0, deviation 1."""
    import numpy as np

    down = np.fft.fftfreq(rows)[:, None]
    across = np.fft.rfftfreq(columns)[None]
    frequency = np.sqrt(down**2 + across**2)
    frequency[0, 0] = 1
    noise = random.normal(size=(2, *frequency.shape))
    found = np.fft.irfft2((noise[0] + 1j * noise[1]) / frequency**power, (rows, columns))
    return (found - found.mean()) / max(found.std(), 1e-9)


def enlarged(image: Any, height: int, width: int) -> Any:
    """An image in another size, by linear interpolation."""
    import numpy as np

    for axis, size in enumerate((height, width)):
        count = image.shape[axis]
        if count == size:
            continue
        places = np.clip((np.arange(size) + 0.5) * count / size - 0.5, 0, count - 1)
        below = np.floor(places).astype(int)
        above = np.minimum(below + 1, count - 1)
        share = (places - below).reshape((-1, *[1] * (image.ndim - 1 - axis)))
        image = np.take(image, below, axis) * (1 - share) + np.take(image, above, axis) * share
    return image


def _color(random: Any) -> Any:
    """A color as surfaces have them: mostly dull, now and then a strong one."""
    import numpy as np

    grey = random.beta(1.2, 1.4)
    strong = random.random() ** 2
    return np.clip(grey + strong * random.uniform(-0.6, 0.6, 3), 0.0, 1.0)


def _ramp(random: Any, rows: int, columns: int) -> Any:
    """Light from one side, between 0 and 1."""
    import numpy as np

    angle = random.uniform(0, 2 * np.pi)
    down, across = np.mgrid[0 : 1 : rows * 1j, 0 : 1 : columns * 1j]
    slope = np.cos(angle) * (across - 0.5) + np.sin(angle) * (down - 0.5)
    return 0.5 + slope / 1.5


def _background(random: Any, rows: int, columns: int) -> Any:
    first, second = _color(random), _color(random)
    clouds = enlarged(texture(random, 48, 48, 1.4), rows, columns)
    share = np_clip(_ramp(random, rows, columns) + 0.2 * clouds)
    return first * share[..., None] + second * (1 - share[..., None])


def np_clip(values: Any) -> Any:
    """Between 0 and 1."""
    import numpy as np

    return np.clip(values, 0, 1)


def _leaves(image: Any, random: Any, grain: Any, count: int) -> None:
    """Disks, ellipses and boxes in front of each other; sizes follow a power law."""
    import numpy as np

    rows, columns = image.shape[:2]
    least, most = 0.02 * max(rows, columns), 0.45 * max(rows, columns)
    for _ in range(count):
        # p(size) ~ size**-3 between the limits
        radius = 1 / np.sqrt(random.uniform(1 / most**2, 1 / least**2))
        down, across = random.uniform(0, rows), random.uniform(0, columns)
        angle, flat = random.uniform(0, np.pi), random.uniform(0.35, 1)
        kind, color, rough = random.integers(3), _color(random), random.uniform(0, 0.08)
        top, bottom = int(max(down - radius - 1, 0)), int(min(down + radius + 2, rows))
        left, right = int(max(across - radius - 1, 0)), int(min(across + radius + 2, columns))
        y, x = np.mgrid[top:bottom, left:right] - np.array([down, across])[:, None, None]
        u = (x * np.cos(angle) + y * np.sin(angle)) / radius
        v = (y * np.cos(angle) - x * np.sin(angle)) / (radius * flat)
        inside = u**2 + v**2 if kind < 2 else np.maximum(abs(u), abs(v)) ** 2 * 2
        cover = np_clip((1 - np.sqrt(inside)) * radius + 0.5)[..., None]
        shade = color * (1 + 0.35 * (u - v) / 2)[..., None]
        shade = shade + rough * grain[top:bottom, left:right, None]
        part = image[top:bottom, left:right]
        part += cover * (shade - part)


def _oval(image: Any, center: Any, radii: Any, color: Any, soft: float = 0.08) -> None:
    import numpy as np

    top, left = (max(int(c - 1.2 * r), 0) for c, r in zip(center, radii, strict=True))
    part = image[
        top : int(center[0] + 1.2 * radii[0]) + 2, left : int(center[1] + 1.2 * radii[1]) + 2
    ]
    y, x = np.mgrid[top : top + part.shape[0], left : left + part.shape[1]]
    far = np.hypot((y - center[0]) / radii[0], (x - center[1]) / radii[1])
    cover = np_clip((1 - far) / soft + 0.5)[..., None]
    part += cover * (color - part)


def _face(image: Any, random: Any) -> None:
    """Something like a face: skin, hair, two eyes, a mouth."""
    import numpy as np

    rows, columns = image.shape[:2]
    size = random.uniform(0.18, 0.36) * min(rows, columns)
    down = random.uniform(0.4, 0.6) * rows
    across = random.uniform(0.3, 0.7) * columns
    skin = np.array([0.9, 0.7, 0.55]) * random.uniform(0.35, 1.05)
    hair = np.array([0.35, 0.25, 0.15]) * random.uniform(0.2, 1.8)
    _oval(image, (down - 0.25 * size, across), (1.15 * size, 0.95 * size), hair, 0.15)
    _oval(image, (down + 0.1 * size, across), (size, 0.76 * size), skin)
    for side in (-0.32, 0.32):
        eye = (down - 0.1 * size, across + side * size)
        _oval(image, eye, (0.1 * size, 0.17 * size), np.array([0.95, 0.95, 0.92]))
        _oval(image, eye, (0.08 * size, 0.08 * size), hair * 0.6)
    _oval(image, (down + 0.25 * size, across), (0.16 * size, 0.08 * size), skin * 0.85, 0.4)
    mouth = random.uniform(0.04, 0.12) * size
    _oval(image, (down + 0.58 * size, across), (mouth, 0.26 * size), skin * [0.8, 0.45, 0.45])


def _sheet(image: Any, random: Any) -> None:
    """A sheet of paper, or a sign, with lines of text."""
    rows, columns = image.shape[:2]
    top, left = (int(random.uniform(0.02, 0.2) * size) for size in (rows, columns))
    bottom, right = (int(random.uniform(0.8, 0.98) * size) for size in (rows, columns))
    paper, ink = random.uniform(0.75, 1), random.uniform(0, 0.25)
    if random.random() < 0.3:
        paper, ink = ink, paper
    image[top:bottom, left:right] = paper * (0.9 + 0.1 * random.random(3))
    height = int(random.uniform(0.05, 0.12) * rows) + 7
    for line in range(top + height // 2, bottom - height, int(height * 1.5)):
        room = right - left - height
        cover = text_line(words(random, 40), height)[:, : max(room, 0)]
        start = left + height // 2
        part = image[line : line + height, start : start + cover.shape[1]]
        part += cover[: part.shape[0], :, None] * (ink - part)


def _shapes(image: Any, random: Any) -> None:
    """A few large and plain shapes, as signs, screens and drawings have them."""
    rows, columns = image.shape[:2]
    for _ in range(random.integers(2, 6)):
        center = random.uniform(0, rows), random.uniform(0, columns)
        radii = random.uniform(0.08, 0.3, 2) * min(rows, columns)
        if random.random() < 0.5:
            _oval(image, center, radii, _color(random), 0.03)
        else:
            top, left = (int(max(c - r, 0)) for c, r in zip(center, radii, strict=True))
            box = image[top : int(center[0] + radii[0]), left : int(center[1] + radii[1])]
            box[:] = _color(random)


def _stretched(image: Any, random: Any) -> Any:
    """Exposure as cameras choose it: most of the range is used, some of it is lost."""
    import numpy as np

    low, high = np.quantile(image[::4, ::4], (random.uniform(0, 0.04), random.uniform(0.96, 1)))
    return np_clip((image - low) / max(high - low, 1e-6)) ** random.uniform(0.7, 1.4)


def words(random: Any, length: int) -> str:
    """Words, numbers and punctuation of at least that many letters."""
    found = ""
    while len(found) < length:
        word = "".join(random.choice(_SYLLABLES, random.integers(1, 4)))
        style = random.integers(8)
        found += (word.upper() if style == 0 else word.title() if style < 3 else word) + (
            " " if style < 6 else str(random.choice([", ", ". ", ": ", " - ", "! ", "? ", " / "]))
        )
    return found[:length].strip()


def text_line(text: str, height: int, weight: float = 0.55, slant: float = 0.0) -> Any:
    """How much ink covers each pixel of a line, between 0 and 1."""
    import numpy as np

    drawn = [_letter(one, height, weight, slant) for one in text]
    return np.concatenate(drawn or [np.zeros((height, 1))], axis=1)


@cache
def _strokes() -> Mapping[str, str]:
    file = Path(__file__).with_name("letters.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


@cache
def _letter(letter: str, height: int, weight: float, slant: float) -> Any:
    import numpy as np

    unit = height / (_ROWS + 1)
    y, x = np.mgrid[0:height, 0 : max(round(unit * (_COLUMNS + 0.8)), 2)] / unit - 0.5
    x = x + slant * (y - _ROWS / 2) / _ROWS
    far = np.full(y.shape, 9.0)
    for stroke in _strokes().get(letter, "").split(","):
        points = [(int(one[0]), int(one[1])) for one in stroke.split()]
        for (left, top), (right, bottom) in pairwise(points):
            across, down = right - left, bottom - top
            share = ((x - left) * across + (y - top) * down) / max(across**2 + down**2, 1)
            share = np.clip(share, 0, 1)
            far = np.minimum(far, np.hypot(x - left - share * across, y - top - share * down))
    return np.clip((weight - far) * unit + 0.5, 0, 1)
