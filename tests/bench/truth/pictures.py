"""Pictures as users of readers and detectors have them: lines, pages and photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.bench.truth.packages import fetched

if TYPE_CHECKING:
    from PIL.Image import Image

Array = np.ndarray[Any, Any]
FONTS = (
    ("font-caladea", "font_caladea/files/Caladea-Regular.ttf"),
    ("font-source-sans-pro", "font_source_sans_pro/files/SourceSansPro-Regular.ttf"),
    ("font-source-serif-pro", "font_source_serif_pro/files/SourceSerifPro-Semibold.ttf"),
    ("font-hanken-grotesk", "font_hanken_grotesk/files/HankenGrotesk-Medium.otf"),
)


@cache
def font(number: int, size: int) -> Any:
    """One of the fonts."""
    from PIL import ImageFont

    package, path = FONTS[number % len(FONTS)]
    return ImageFont.truetype(str(fetched(package) / path), size)


def photograph(name: str) -> Image:
    """One of scikit-image's."""
    from PIL import Image

    return Image.open(fetched("scikit-image") / "skimage" / "data" / name).convert("RGB")


def line(text: str, random: np.random.Generator) -> Image:
    """A photographed line: any font, any colours, somewhat blurred, with the noise of a camera."""
    from PIL import Image, ImageDraw, ImageFilter

    face = font(int(random.integers(len(FONTS))), int(random.integers(24, 41)))
    left, top, right, bottom = face.getbbox(text)
    margin = int(random.integers(4, 11))
    size = (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin)
    ink, paper = _colours(random)
    image = Image.new("RGB", size, paper)
    ImageDraw.Draw(image).text((margin - left, margin - top), text, ink, face)
    image = image.filter(ImageFilter.GaussianBlur(float(random.uniform(0, 0.8))))
    return _noisy(image, random)


@dataclass(frozen=True, slots=True)
class Page:
    """A page and the boxes of its lines: left, top, right, bottom."""

    image: Image
    boxes: Sequence[tuple[int, int, int, int]]


def page(
    texts: Sequence[str], random: np.random.Generator, size: tuple[int, int], back: Image | None
) -> Page:
    """Lines below each other, on paper or on a photograph."""
    from PIL import Image, ImageDraw

    ink, paper = _colours(random)
    image = back.resize(size) if back is not None else Image.new("RGB", size, paper)
    draw, boxes, y = ImageDraw.Draw(image), [], int(random.integers(10, 40))
    for text in texts:
        face = font(int(random.integers(len(FONTS))), int(random.integers(18, 37)))
        x = int(random.integers(8, 60))
        box = draw.textbbox((x, y), text, face)
        if box[3] > size[1] - 8:
            break
        if back is not None:
            draw.rectangle([box[0] - 5, box[1] - 4, box[2] + 5, box[3] + 4], paper)
        draw.text((x, y), text, ink, face)
        boxes.append((int(box[0]), int(box[1]), min(int(box[2]), size[0]), int(box[3])))
        y = int(box[3]) + int(random.integers(12, 34))
    return Page(_noisy(image, random), boxes)


def _colours(random: np.random.Generator) -> tuple[Any, Any]:
    """Dark on light, or every fourth time light on dark."""
    dark, light = random.integers(0, 90, 3), random.integers(175, 256, 3)
    ink, paper = (light, dark) if random.random() < 0.25 else (dark, light)
    return tuple(map(int, ink)), tuple(map(int, paper))


def _noisy(image: Image, random: np.random.Generator) -> Image:
    from PIL import Image

    pixels: Array = np.asarray(image, np.float32)
    pixels = pixels + random.normal(0, random.uniform(0, 6), pixels.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def channels(image: Image, mean: Sequence[float], deviation: Sequence[float]) -> Array:
    """Normalized channels of one image with a batch axis, blue first as OpenCV reads them."""
    pixels: Array = np.asarray(image, np.float32)[:, :, ::-1] / 255
    pixels = (pixels - np.array(mean, np.float32)) / np.array(deviation, np.float32)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None].astype(np.float32))


def words_of(words: Sequence[str], random: np.random.Generator, length: int) -> str:
    """Some words, figures and capitals in a line of at most so many characters."""
    parts: list[str] = []
    while True:
        word = words[int(random.integers(len(words)))]
        kind = random.random()
        if kind < 0.15:
            word = str(int(random.integers(10 ** int(random.integers(1, 6)))))
        elif kind < 0.35:
            word = word.capitalize()
        elif kind < 0.45:
            word = word.upper()
        if parts and len(" ".join((*parts, word))) > length:
            return " ".join(parts)
        parts.append(word + ("," if random.random() < 0.08 else ""))
