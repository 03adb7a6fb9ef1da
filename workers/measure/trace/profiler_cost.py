"""What a profiler adds, and operators without it.

ONNX Runtime's profiler takes most of its time between operators, where it writes events: a run
under it may take several times as long. To the time of an operator it adds about the same, whether
that is large or small: 1.6 us on a machine where an operator of 1.2 us was told as 2.8 us, and one
of 6.5 us as 7.9 us. Shrinking all operators by one factor would blame small ones for what large
ones cost. So the same is taken off each: what their sum is above a run without the profiler,
divided by their number, and never more than the smallest one has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import mul
from statistics import fmean

from workers.measure.trace.result import Operator


def added_to_each(operators: Sequence[Operator], samples: int, plain: Sequence[float]) -> float:
    """Microseconds that the profiler adds to an operator; `plain`: runs without it."""
    runs = sum(one.sample_count for one in operators)
    if not runs or not samples or not plain:
        return 0.0
    told = sum(_middle(one.samples_us or [one.avg_us]) * one.sample_count for one in operators)
    excess = told / samples - _middle(plain)
    least = min(_middle(one.samples_us or [one.avg_us]) for one in operators)
    return max(0.0, min(excess * samples / runs, least))


def estimated(
    operators: Sequence[Operator], samples: int, plain: Sequence[float], added: float
) -> tuple[Operator, ...]:
    """The operators with their cost in a run without the profiler, which adds so much to each."""
    costs = [max(0.0, one.avg_us - added) for one in operators]
    often = [one.sample_count / samples for one in operators]
    whole = max(fmean(plain), sum(map(mul, costs, often)))
    return tuple(
        replace(
            one, estimated_us=cost, estimated_percent=100 * cost * share / whole if whole else 0.0
        )
        for one, cost, share in zip(operators, costs, often, strict=True)
    )


def _middle(values: Sequence[float]) -> float:
    """The mean of the middle half: no outlier counts, and whole microseconds still average."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    return fmean(ordered[cut : len(ordered) - cut])
