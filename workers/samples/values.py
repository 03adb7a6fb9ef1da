"""Values of masks, tokens and what counts them; what a configuration tells about tokens."""

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
