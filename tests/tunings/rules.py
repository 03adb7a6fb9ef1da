"""The rules by which scripts before modelmill judged builds, with their weaknesses.

They compare the medians of a few sessions of each build, measured one after another, so they take
a baseline that drifts or alternates between two speeds for a gain. `tests.bench.tune` measures how
often, beside the rule of modelmill.
"""

from __future__ import annotations

from collections.abc import Sequence

MIN_GAIN = 5.0
"""Percent of the baseline's latency."""


def median(values: Sequence[float]) -> float:
    """The middle one; of an even number the upper middle, as all the recordings have it."""
    return sorted(values)[len(values) // 2]


def gain(baseline: float, candidate: float) -> float:
    """By how many percent of the baseline's latency the candidate is faster."""
    return (baseline - candidate) / baseline * 100


# The loop for one model on a CPU.


def loop_verdict(gained: float, cv: float) -> str:
    """`cv`: the coefficient of variation of the candidate in percent."""
    threshold = max(1.0, 2 * cv)
    if gained < threshold:
        return "DISCARD"
    return "MARGINAL_KEEP" if gained < 1.5 * threshold else "KEEP"


# The sweep over models on an NPU.


def npu_opset_rule(baseline: Sequence[float], candidate: Sequence[float]) -> str:
    """Whether another opset helps: `true` only if also the slowest session beats the fastest."""
    gained = gain(median(baseline), median(candidate))
    if gained >= MIN_GAIN:
        return "true" if max(candidate) < min(baseline) else "median_only"
    return "false" if gained < -MIN_GAIN else "neutral"


def npu_confirmation(baseline: Sequence[float], candidate: Sequence[float]) -> str:
    """The best of a model, with the sessions of its confirmation."""
    return "CONFIRMED" if max(candidate) < min(baseline) else "MARGINAL_UNCONFIRMED"


def npu_regression(baseline: float, candidate: float) -> bool:
    """Whether a build is at least five times as slow, as fused convolutions can make it."""
    return candidate >= 5 * baseline


# The sweep over models on a GPU.


def gpu_verdict(gained: float) -> str:
    """From the medians alone."""
    if gained >= MIN_GAIN:
        return "KEEP"
    return "MARGINAL" if gained > 0 else "DISCARD"


def gpu_confirmation(baseline: float, sessions: Sequence[float]) -> str:
    """Every session must gain."""
    every = all(gain(baseline, one) >= MIN_GAIN for one in sessions)
    return "KEEP_CONFIRMED" if every else "MARGINAL_UNCONFIRMED"
