"""Numbers that describe samples. NumPy is imported only when something is calculated."""

from __future__ import annotations

from collections.abc import Sequence

from workers.measure.result import Latency


def latency(nanoseconds: Sequence[int]) -> Latency:
    """The distribution of the times of single runs."""
    import numpy as np

    times = np.asarray(nanoseconds, dtype=np.float64) / 1e6
    mean = float(times.mean())
    std = float(times.std(ddof=1)) if len(times) > 1 else 0.0
    p50, p90, p95, p99 = np.percentile(times, (50, 90, 95, 99))
    return Latency(
        count=len(times),
        p50=float(p50),
        p90=float(p90),
        p95=float(p95),
        p99=float(p99),
        mean=mean,
        std=std,
        min=float(times.min()),
        max=float(times.max()),
        cv=std / mean if mean else 0.0,
        throughput=1000 / mean if mean else 0.0,
    )


def median(values: Sequence[float]) -> float:
    """The middle of values."""
    import numpy as np

    return float(np.median(values))


def drift(medians: Sequence[float]) -> float:
    """How much the last is above the first, as a share; below zero: less."""
    return medians[-1] / medians[0] - 1 if len(medians) > 1 and medians[0] else 0.0
