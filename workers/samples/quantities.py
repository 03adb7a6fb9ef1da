"""Values of measured quantities: pixels, sounds, places, series, states."""

from __future__ import annotations

from typing import Any

from workers.samples import signals
from workers.samples.values import Asked, filled, ones, zeros

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
