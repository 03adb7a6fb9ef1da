"""Letters as strokes, and lines of text from them: the same everywhere, without a font file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

_ROWS, _COLUMNS = 9, 5
_SYLLABLES = (
    *("an", "ber", "ca", "do", "el", "fa", "gri", "ho", "in", "jo", "ka", "lu", "mer", "no", "or"),
    *("pe", "qui", "ra", "sto", "ti", "un", "ve", "wo", "xa", "yen", "za", "light", "stone"),
    *("river", "market", "street", "open", "north", "12", "40", "7", "365", "Exit", "Station"),
)


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


def line(text: str, height: int, weight: float = 0.55, slant: float = 0.0) -> Any:
    """How much ink covers each pixel of a line, between 0 and 1."""
    import numpy as np

    drawn = [_letter(one, height, weight, slant) for one in text]
    return np.concatenate(drawn or [np.zeros((height, 1))], axis=1)


@cache
def _strokes() -> Mapping[str, str]:
    file = Path(__file__).with_suffix(".toml")
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
