"""Reads the profiling info of OpenVINO.

OpenVINO keeps only the mean of all runs since the model was opened, in whole microseconds. From the
means after the warm-up and after the last run follows the mean of the measured runs, and nothing
about single ones. Counting in whole microseconds makes it uncertain by about one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workers.measure.trace.errors import NoData
from workers.measure.trace.operators import Series
from workers.measure.trace.readings import Readings, Window
from workers.measure.trace.result import Summary


def read_info(rows: Sequence[Mapping[str, Any]], window: Window) -> Readings:
    """From what the monitor has seen of each operator, see `workers.runtimes.monitors`.

    Raises `NoData`.
    """
    means = [_mean(row["before"], row["after"], window) for row in rows]
    if not any(means):
        raise NoData("OpenVINO reports no times")
    whole = sum(means)
    return Readings(
        series=tuple(
            Series(
                path=row["name"],
                op_id=place,
                order=place,
                mean=mean,
                count=window.iterations,
                shares=mean / whole * window.iterations,
                facts=_facts(row),
                held=tuple(row.get("held", ())),
            )
            for place, (row, mean) in enumerate(zip(rows, means, strict=True))
        ),
        summary=Summary(),
        samples=window.iterations,
    )


def _mean(before: int, after: int, window: Window) -> float:
    """Of the measured runs; each mean was cut to whole microseconds."""
    whole = window.runs * (after + 0.5 * (after > 0)) - window.warmup * (
        before + 0.5 * (before > 0)
    )
    return max(0.0, whole / window.iterations)


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    types: Sequence[str] = str(row.get("precision") or "").split(",")
    return {
        "op_type": row.get("type") or None,
        "data_type": types[0] or None,
        "dims": tuple(row["dims"]) if row.get("dims") else None,
    }
