"""A user's images and sounds, from their files."""

from __future__ import annotations

import math
import wave
from pathlib import Path
from typing import Any

from workers.sources.errors import failing, quantize_error

_WIDTHS = {1: "u1", 2: "<i2", 4: "<i4"}
"""Bytes of a value of a sound and its type."""


def picture(file: Path) -> Any:
    """The pixels of an image: height, width, three colors."""
    import numpy as np
    from PIL import Image, ImageOps

    what = f"{file.name} in the dataset cannot be read as an image"
    hint = "leave it out, or save it again as .png"
    with failing(quantize_error, what, hint), Image.open(file) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def sound(file: Path, rate: int, seconds: float) -> Any:
    """The values of the beginning of a sound at a rate, from -1 to 1."""
    import numpy as np

    what = f"{file.name} in the dataset cannot be read as a sound"
    with failing(quantize_error, what, "leave it out, or save it again as .wav (PCM)"):
        with wave.open(str(file), "rb") as stream:
            width, channels = stream.getsampwidth(), stream.getnchannels()
            own = stream.getframerate()
            raw = stream.readframes(math.ceil(seconds * own))
        if width == 3:  # to four bytes, which NumPy has a type for
            parts = np.frombuffer(raw, np.uint8).reshape(-1, 3)
            raw, width = np.insert(parts, 0, 0, axis=1).tobytes(), 4
        values = np.frombuffer(raw, _WIDTHS[width]).reshape(-1, channels).astype(np.float64)
        if not len(values):
            raise ValueError("it is empty")
    values = (values - 128 if width == 1 else values).mean(1) / 2 ** (8 * width - 1)
    count = max(round(len(values) * rate / own), 1)
    if count != len(values):
        values = np.interp(np.arange(count) * own / rate, np.arange(len(values)), values)
    return values.astype(np.float32)
