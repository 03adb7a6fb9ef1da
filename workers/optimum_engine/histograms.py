"""Ranges of tensors from how often values occur, instead of from the outermost ones.

A bin holds the floats that begin with the same bits: sign, exponent and four bits more, so bins are
as fine for small values as for large ones, need no range in advance, and are the same on every CPU.
"""

from __future__ import annotations

from typing import Any

METHODS = ("minmax", "average", "percentile", "mse")
OUTERMOST = 1e-4
"""The share of values that `percentile` leaves out, half of it at each end."""
_SHIFT = 19
_BINS = 1 << (32 - _SHIFT)
_MOST = 1 << 16
"""Values of a tensor that are counted in a sample; of more, evenly spaced ones."""
_OCTAVES = 4
"""How far `mse` looks for a range: down to a sixteenth at each end."""


def counts(array: Any) -> Any:
    """How many values of a float32 array are in each bin."""
    import numpy as np

    flat = np.ascontiguousarray(array, np.float32).reshape(-1)
    flat = flat[:: max(1, len(flat) // _MOST)]
    return np.bincount(flat.view(np.uint32) >> _SHIFT, minlength=_BINS)


def percentile(found: Any, low: float, high: float) -> tuple[float, float]:
    """The range without the outermost values."""
    import numpy as np

    values, number = _sorted(found)
    below = np.cumsum(number)
    cut = OUTERMOST / 2 * below[-1]
    inner = values[(below > cut) & (below - number < below[-1] - cut)]
    return max(low, float(inner[0])), min(high, float(inner[-1]))


def mse(found: Any, low: float, high: float, levels: int) -> tuple[float, float]:
    """The range with the least squared error: what is cut off, and what is rounded inside."""
    import numpy as np

    values, number = _sorted(found)
    low, high = min(low, 0.0), max(high, 0.0)
    shrink = 2.0 ** -(np.arange(_OCTAVES * 16 + 1) / 16)
    lows, highs = (low * shrink if low else np.zeros(1)), (high * shrink if high else np.zeros(1))
    cut_low = (np.minimum(values - lows[:, None], 0) ** 2 * number).sum(axis=1)
    cut_high = (np.maximum(values - highs[:, None], 0) ** 2 * number).sum(axis=1)
    steps = (highs[None, :] - lows[:, None]) / levels
    error = cut_low[:, None] + cut_high[None, :] + steps**2 / 12 * number.sum()
    # Of equal ones, the widest.
    at = np.unravel_index(np.argmin(np.round(error / (error.max() or 1.0), 9)), error.shape)
    return float(lows[at[0]]), float(highs[at[1]])


def _sorted(found: Any) -> tuple[Any, Any]:
    """The middle of each bin with values, in order, and how many it has."""
    import numpy as np

    places = np.flatnonzero(found)
    bits = ((places << _SHIFT) + (1 << (_SHIFT - 1))).astype(np.uint32)
    values = bits.view(np.float32).astype(np.float64)
    order = np.argsort(values)
    return values[order], found[places][order].astype(np.float64)
