"""What a parser reads of a source, and the operators and statistics that its samples give, with and
without what a profiler adds.

ONNX Runtime's profiler takes most of its time between operators, where it writes events: a run
under it may take several times as long. To the time of an operator it adds about the same, whether
that is large or small: 1.6 us on a machine where an operator of 1.2 us was reported as 2.8 us, and
one of 6.5 us as 7.9 us. Shrinking all operators by one factor would blame small ones for what large
ones cost. So the same is taken off each: what their sum is above a run without the profiler,
divided by their number, and never more than the smallest one has.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul
from pathlib import Path
from statistics import fmean, median, pstdev, quantiles
from typing import Any

from workers.measure.trace.result import (
    Distribution,
    FallbackReason,
    OnnxNode,
    Operator,
    Statistics,
    Summary,
    TraceStatus,
    TypeTotal,
)

OTHER = "(no type)"


@dataclass(slots=True)
class Series:
    """The samples of one operator, in order."""

    path: str
    op_id: int
    order: int
    values: list[float] = field(default_factory=list)
    """Microseconds, one for each sample in which it appears."""
    shares: float = 0.0
    """The sum over these samples of its part of the whole, from 0 to 1 each."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further fields of `Operator`."""
    held: tuple[str, ...] = ()
    """The source's names of nodes or tensors of the ONNX graph that are in it."""
    mean: float = 0.0
    count: int = 0
    """Of a source that keeps only the mean of so many samples: there are no values."""

    def operator(self) -> Operator:
        """With everything that the samples give."""
        count = self.count or len(self.values)
        mean = self.mean if self.count else fmean(self.values)
        return Operator(
            **{"name": self.path, **self.facts},
            op_path=self.path,
            op_id=self.op_id,
            order=self.order,
            samples_us=tuple(self.values),
            sample_count=count,
            avg_us=mean,
            total_us=mean * count if self.count else sum(self.values),
            p50_us=median(self.values) if self.values else None,
            p90_us=p90(self.values) if self.values else None,
            percent_of_total=100 * self.shares / count,
        )


def p90(values: Sequence[float]) -> float:
    """What 90 % of the values do not exceed; between two values where none is exactly there."""
    return quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]


def distribution(values: Sequence[float]) -> Distribution | None:
    """None without values."""
    if not values:
        return None
    mean, std = fmean(values), pstdev(values)
    return Distribution(
        count=len(values),
        mean_us=mean,
        min_us=min(values),
        p50_us=median(values),
        p90_us=p90(values),
        max_us=max(values),
        std_us=std,
        cv=std / mean if mean else 0.0,
    )


def by_cost(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Largest first, by medians: one run that stood still does not make an operator a large one.
    Equal ones in the order of execution."""

    def key(one: Operator) -> tuple[float, float, int]:
        return -(one.avg_us if one.p50_us is None else one.p50_us), -one.avg_us, one.order

    return tuple(sorted(operators, key=key))


def per_inference(operators: Iterable[Operator], samples: int) -> float:
    """Microseconds of operators in one inference, also of those that do not run in every one."""
    return sum(one.total_us for one in operators) / samples if samples else 0.0


def statistics(
    operators: Sequence[Operator],
    samples: int,
    inference: Sequence[float] = (),
    wall: Sequence[float] = (),
    plain: Sequence[float] = (),
) -> Statistics:
    """What the operators add up to. `inference` and `wall`: one value for each iteration; `plain`:
    of runs without the profiler."""
    held: set[OnnxNode] = {node for one in operators for node in one.onnx_nodes or ()}
    rest = fmean(inference) - per_inference(operators, samples) if inference else None
    return Statistics(
        operators=len(operators),
        mapped_operators=sum(bool(one.onnx_nodes) for one in operators),
        onnx_nodes_covered=len(held),
        other_us=rest,
        inference=distribution(inference),
        wall=distribution(wall),
        unprofiled=distribution(plain),
        types=_types(operators, samples),
    )


def _types(operators: Sequence[Operator], samples: int) -> tuple[TypeTotal, ...]:
    groups: dict[str, list[Operator]] = {}
    for one in operators:
        groups.setdefault(one.type or OTHER, []).append(one)
    totals = [
        TypeTotal(
            type=name,
            count=len(group),
            avg_us=per_inference(group, samples),
            percent_of_total=sum(one.percent_of_total for one in group),
            **_estimates(group, samples),
        )
        for name, group in groups.items()
    ]
    return tuple(sorted(totals, key=lambda one: -one.avg_us))


def _estimates(group: Sequence[Operator], samples: int) -> dict[str, float]:
    costs = [one.estimated_us for one in group if one.estimated_us is not None]
    if len(costs) < len(group) or not samples:
        return {}
    often = [one.sample_count / samples for one in group]
    return {
        "estimated_us": sum(map(mul, costs, often)),
        "estimated_percent": sum(one.estimated_percent or 0.0 for one in group),
    }


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
    costs = [max(0.0, _middle(one.samples_us or [one.avg_us]) - added) for one in operators]
    often = [one.sample_count / samples for one in operators]
    whole = max(median(plain), sum(map(mul, costs, often)))
    return tuple(
        replace(
            one, estimated_us=cost, estimated_percent=100 * cost * share / whole if whole else 0.0
        )
        for one, cost, share in zip(operators, costs, often, strict=True)
    )


def _middle(values: Sequence[float]) -> float:
    """The mean of the middle half: no outlier counts, and whole microseconds still average."""
    ordered = sorted(values)
    cut = max(len(ordered) // 4, len(ordered) > 2)
    return fmean(ordered[cut : len(ordered) - cut])


LARGEST = 2 * 1024**3
"""Bytes of a profile; QNN's rows of 1,000 operators in 1,000 executions are 70 MB."""


class Unreadable(ValueError):
    """A profile is damaged, cut off, or does not fit the iterations."""

    status = TraceStatus.PARSE_FAILED


class NoData(ValueError):
    """A profile holds nothing about operators."""

    status = TraceStatus.NO_DATA


class NoDetail(Exception):
    """There is no detailed summary, and why."""

    def __init__(self, reason: FallbackReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Window:
    """The iterations that a profile must cover."""

    warmup: int
    iterations: int

    @property
    def runs(self) -> int:
        """All of them."""
        return self.warmup + self.iterations

    def check(self, file: str, found: int, what: str, parts: int = 1, why: str = "") -> None:
        """Raise `Unreadable` unless a profile holds as many runs, of each part of the graph."""
        if found != self.runs * parts:
            of = f" of {parts} parts of the graph" if parts > 1 else ""
            raise Unreadable(
                f"{file} holds {found} {what}, and {self.warmup} runs to warm up and "
                f"{self.iterations} measured ones{of} make {self.runs * parts}{why}"
            )


@dataclass(frozen=True, slots=True)
class Readings:
    """The measured iterations of a source."""

    series: tuple[Series, ...]
    summary: Summary
    samples: int
    inference: tuple[float, ...] = ()
    """Microseconds of every iteration, if the source reports them."""
    partitions: int | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Further files that the detailed level is read from, by kind."""
    lacking: NoDetail | None = None
    """Why these are of the basic level although detail was asked for."""


def regular_size(path: Path, largest: int = LARGEST) -> int:
    """The bytes of a profile. Raises `NoData` unless it is a file, `Unreadable` if it is too big.

    A pipe would never end.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise NoData(f"{path.name} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise NoData(f"{path.name} is not a file")
    if found.st_size > largest:
        raise Unreadable(f"{path.name} has {found.st_size:,} bytes, and {largest:,} are allowed")
    return found.st_size
