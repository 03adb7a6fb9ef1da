"""Values of masks, tokens and what counts them, and of measured quantities: pixels, sounds, places,
series, states; what a configuration tells about tokens."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

from workers.samples import signals

SPECIAL = 8
"""The first tokens of a vocabulary often mean something else than text."""
_UNKNOWN = 100
"""Fewer tokens than any vocabulary has."""
_FILLED = (0.25, 0.6, 0.85, 0.4, 0.1, 0.7)
"""Shares of an input that samples with padding fill, in turn."""
_PARTS = ("text_config", "text_encoder", "decoder", "encoder", "generator")
"""Configurations inside others that tell about tokens."""


@dataclass(frozen=True)
class Asked:
    """An input for which values are wanted."""

    name: str
    shape: tuple[int, ...]
    kind: Any
    """NumPy's element type."""
    config: Any
    """Of the model; None if there is none."""
    number: int
    """Of the sample."""

    @property
    def random(self) -> Any:
        """A generator of this input's own."""
        import numpy as np

        return np.random.default_rng([self.number, zlib.crc32(self.name.encode())])

    @property
    def floats(self) -> bool:
        """Whether it takes real numbers."""
        return bool(self.kind.kind == "f")

    @property
    def width(self) -> int:
        """The size of the last axis."""
        return self.shape[-1] if self.shape else 1


def filled(number: int, width: int) -> int:
    """How many of so many places the sample of this number fills."""
    if number % 2 == 0:
        return width
    return max(round(width * _FILLED[number // 2 % len(_FILLED)]), 1)


def told(config: Any, *names: str) -> int | None:
    """The first of these numbers that a configuration has."""
    for part in (config, *(getattr(config, name, None) for name in _PARTS)):
        for name in names:
            found = getattr(part, name, None)
            if isinstance(found, list) and found:
                found = found[0]
            if isinstance(found, int) and not isinstance(found, bool):
                return found
    return None


def mask(asked: Asked) -> Any:
    import numpy as np

    keep = np.arange(asked.width) < filled(asked.number, asked.width)
    if re.search("pad(ding)?_?mask", asked.name.casefold()):  # marks what is hidden
        keep = ~keep
    found = np.broadcast_to(keep, asked.shape)
    if asked.floats and len(asked.shape) > 2:  # is added to the scores of the attention
        return np.where(found, 0.0, -10000.0)
    return found.copy()


def region(asked: Asked) -> Any:
    """A part of an image."""
    import numpy as np

    field = signals.field(asked.random, asked.shape)
    return field > np.quantile(field, 0.7)


def ones(asked: Asked) -> Any:
    import numpy as np

    return np.ones(asked.shape)


def zeros(asked: Asked) -> Any:
    import numpy as np

    return np.zeros(asked.shape)


def first(asked: Asked) -> Any:
    """The first token sees all others."""
    found = zeros(asked)
    found[..., :1] = 1
    return found


def pixel_mask(asked: Asked) -> Any:
    """The image at the top left, padding below and to the right."""
    found = zeros(asked)
    rows = filled(asked.number // 2 * 2 + 1, asked.shape[-2]) if asked.number % 4 == 1 else None
    columns = filled(asked.number, asked.width) if asked.number % 4 == 3 else None
    found[..., : max(rows or asked.shape[-2], 2), : max(columns or asked.width, 2)] = 1
    return found


def types(asked: Asked) -> Any:
    """Two texts: the second begins somewhere in the middle of what is filled."""
    found = zeros(asked)
    kinds = told(asked.config, "type_vocab_size", "segment_vocab_size")
    if asked.config is not None and kinds is None:
        kinds = 1 if hasattr(asked.config, "vocab_size") else 2
    if (kinds is None or kinds > 1) and asked.number % 4:
        end = filled(asked.number, asked.width)
        found[..., max(end * (asked.number % 4) // 5, 1) : end] = 1
    return found


def languages(asked: Asked) -> Any:
    return zeros(asked) + asked.number % max(told(asked.config, "n_langs") or 1, 1)


def count(asked: Asked) -> Any:
    import numpy as np

    return np.broadcast_to(np.arange(asked.width), asked.shape).copy()


def codes(asked: Asked) -> Any:
    return asked.random.integers(0, told(asked.config, "codebook_size") or _UNKNOWN, asked.shape)


def tokens(asked: Asked) -> Any:
    """Tokens as frequent as in texts, where the one of rank r has a share of about 1/r."""
    import numpy as np

    if asked.kind.itemsize == 1:
        return asked.random.integers(0, 128, asked.shape)
    size = told(asked.config, "vocab_size") or _UNKNOWN
    first = min(SPECIAL, size - 1)
    ranks = (size - first + 1) ** asked.random.random(asked.shape) - 1
    return np.minimum(first + np.floor(ranks), size - 1)


_RATE = 16000


def time(asked: Asked) -> Any:
    return zeros(asked) + asked.random.integers(0, 1000)


def rate(asked: Asked) -> Any:
    return zeros(asked) + _RATE


def boxes(asked: Asked) -> Any:
    """Left, top, right and bottom in the order of reading."""
    import numpy as np

    lines = np.arange(int(np.prod(asked.shape[:-1])))
    wide, high = asked.random.uniform(0.03, 0.15, lines.size), asked.random.uniform(0.01, 0.03)
    left = lines * 0.11 % 0.8 + asked.random.uniform(0, 0.03, lines.size)
    top = (lines // 8 * 0.04 + asked.random.uniform(0, 0.1)) % 0.95
    found = np.stack([left, top, left + wide, top + high], -1).reshape(asked.shape)
    if asked.name.casefold() == "input_boxes":
        return found * signals.side(asked.config)
    return found if asked.floats else np.floor(found * 1000)


def points(asked: Asked) -> Any:
    return asked.random.uniform(0.1, 0.9, asked.shape) * signals.side(asked.config)


def marks(asked: Asked) -> Any:
    """Points of the object, and now and then one beside it."""
    found = ones(asked)
    if asked.number % 3 == 2 and asked.width > 1:
        found[..., -1] = 0
    return found


def pixels(asked: Asked) -> Any:
    return signals.pixels(asked.shape, asked.number, whole=not asked.floats)


def patches(asked: Asked) -> Any:
    """Rows and columns from 1, then the pixels; what is not filled is zero."""
    import numpy as np

    count = asked.shape[-2]
    across = max(int(np.sqrt(count)), 1)
    found = np.repeat(signals.field(asked.random, asked.shape)[..., :1] * 0.7, asked.width, -1)
    found = found + 0.6 * signals.field(asked.random, asked.shape)
    found[..., 0] = np.arange(count) // across + 1
    found[..., 1] = np.arange(count) % across + 1
    found[..., filled(asked.number, count) :, :] = 0
    return found


def wave(asked: Asked) -> Any:
    return signals.waves(asked.shape, asked.number)


def sound(asked: Asked) -> Any:
    """A wave, or its features if there are several for each moment."""
    return mel(asked) if len(asked.shape) == 3 and min(asked.shape[1:]) > 2 else wave(asked)


def mel(asked: Asked) -> Any:
    return signals.mel(asked.shape, asked.number)


def series(asked: Asked) -> Any:
    """A level, a trend, a season and noise; the axis of time is the second."""
    import numpy as np

    random = asked.random
    rows, others = asked.shape[:1], asked.shape[2:]
    size = (*rows, 1, *others)
    shape = (1, asked.shape[1], *[1] * len(others)) if len(asked.shape) > 1 else asked.shape
    time = np.arange(asked.shape[1] if len(asked.shape) > 1 else asked.width).reshape(shape)
    level, trend = random.normal(0, 2, size), random.normal(0, 0.02, size)
    season = random.uniform(0.3, 2, size) * np.sin(
        2 * np.pi * (time / random.choice([7, 12, 24]) + random.random(size))
    )
    return np.broadcast_to(
        level + trend * time + season + random.normal(0, 0.2, asked.shape), asked.shape
    ).copy()


def moments(asked: Asked) -> Any:
    """Hour, day, month as shares of their cycle, around 0."""
    import numpy as np

    moment = np.arange(asked.shape[1])[:, None] + asked.number * 37
    cycles = np.array([24, 168, 730, 8760])[np.arange(asked.width) % 4]
    return np.broadcast_to(moment / cycles % 1 - 0.5, asked.shape).copy()


def states(asked: Asked) -> Any:
    """A path: each state is close to the last one."""
    import numpy as np

    steps = asked.random.normal(0, 0.3, asked.shape)
    axis = 1 if len(asked.shape) > 2 else 0
    return np.clip(np.cumsum(steps, axis) + asked.random.normal(0, 0.5, asked.width), -3, 3)


def recurrent(asked: Asked) -> Any:
    return asked.random.normal(0, 0.3, asked.shape).clip(-1, 1)


def actions(asked: Asked) -> Any:
    return asked.random.normal(0, 0.5, asked.shape).clip(-1, 1)


def returns(asked: Asked) -> Any:
    """What is still to be reached, less with every step."""
    import numpy as np

    got = np.cumsum(asked.random.uniform(0, 0.02, asked.shape), axis=1 % len(asked.shape))
    return asked.random.uniform(0.5, 3.6) - got


def depth(asked: Asked) -> Any:
    """Meters."""
    import numpy as np

    return np.exp(0.5 * signals.field(asked.random, asked.shape) + 0.7)


def even(asked: Asked) -> Any:
    return asked.random.random(asked.shape)


def normal(asked: Asked) -> Any:
    return asked.random.normal(size=asked.shape)


def near_one(asked: Asked) -> Any:
    return asked.random.uniform(0.7, 1.1, asked.shape)
