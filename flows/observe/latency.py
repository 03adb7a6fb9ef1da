"""Benchmarks as reports and comparisons show them.

Times of different devices, kinds of runtimes or protocols are never compared, and those of an
emulator only with its own, marked as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from flows.observe.evidence import EMULATED
from flows.output.quantity import counted, show_ms
from state.records import Measurement, MeasurementKind

Key = tuple[object, ...]
_CLEAR = frozenset({"faster", "slower"})
"""Verdicts of `workers.measure.verdict`."""


@dataclass(frozen=True, slots=True)
class LatencyChange:
    """The median latency of a cell in two sweeps, measured in the same way."""

    component: str
    on: str
    """Provider and device."""
    emulated: bool
    before: float
    """Milliseconds."""
    after: float
    clear: bool
    """Whether all sessions of one sweep were faster than all of the other; else it may be noise."""
    notes: tuple[str, ...] = ()
    """What else differs: the version of the runtime, the machine."""
    verdict: str = ""
    """Of `bench --against`, if both were compared in turns."""

    @property
    def ratio(self) -> float:
        """The change as a share of what was."""
        return self.after / self.before - 1 if self.before else 0.0

    def __str__(self) -> str:
        """For people, in one line."""
        about = f"{self.component} " if self.component else ""
        was, now = show_ms(self.before), show_ms(self.after)
        told = f"{about}latency p50 {was} -> {now} ({self.ratio:+.1%}) on {self.on}"
        if self.verdict:
            told += f", in turns: {self.verdict}"
        elif not self.clear:
            told += ", within the noise of its sessions"
        return "; ".join((told, *self.notes, *([EMULATED] if self.emulated else [])))


def changes(
    before: Sequence[Measurement],
    after: Sequence[Measurement],
    stamps: tuple[str, str],
    content: str | None = None,
) -> Iterator[LatencyChange]:
    """What differs between the measurements of a cell in two sweeps.

    Where `bench --against` has compared it with the `content` that it had before, that decides.
    Else a sweep's own benchmark counts; without one, the last of the same content.
    """
    compared = _compared(content, after)
    yield from compared.values()
    was, now = _chosen(before, stamps[0]), _chosen(after, stamps[1])
    for key in sorted(was.keys() & now.keys(), key=str):
        one, other = was[key], now[key]
        old, new = _number(one, "p50"), _number(other, "p50")
        if one.id == other.id or old is None or new is None or _place(other) in compared:
            continue
        first, second = _sessions(one) or [old], _sessions(other) or [new]
        yield LatencyChange(
            component=one.component,
            on=runtime_of(other),
            emulated=other.emulated,
            before=old,
            after=new,
            clear=max(first) < min(second) or max(second) < min(first),
            notes=tuple(_notes(one, other)),
        )


def _compared(
    content: str | None, after: Sequence[Measurement]
) -> dict[tuple[str, str], LatencyChange]:
    """The last comparison with this content on each runtime, by `_place`."""
    found: dict[tuple[str, str], LatencyChange] = {}
    for one in after:
        view = comparison_of(one)
        if view is None or content in {None, one.tree} or view["tree"] != content:
            continue
        if view["against_on"] == runtime_of(one):
            found[_place(one)] = LatencyChange(
                component=one.component,
                on=runtime_of(one),
                emulated=one.emulated,
                before=view["other_p50"],
                after=view["p50"],
                clear=view["verdict"] in _CLEAR,
                verdict=f"{view['verdict']} ({view['told']})",
            )
    return found


def _place(one: Measurement) -> tuple[str, str]:
    return one.component, runtime_of(one)


def runtime_of(one: Measurement) -> str:
    """Where it was measured."""
    return f"{one.provider} {one.device}" + (" (emulated)" if one.emulated else "")


def view_of(one: Measurement) -> dict[str, Any]:
    """A benchmark as a report shows it."""
    times = ("p50", "p90", "p95", "p99", "mean", "std", "min", "max")
    others = ("throughput", "open_cold", "open_warm", "open_memory", "run_memory")
    told: dict[str, Any] = {
        "component": one.component,
        "on": runtime_of(one),
        "emulated": one.emulated,
        "version": one.version,
        "machine": one.machine,
        "stamp": one.stamp,
        "at": one.at,
        "protocol": protocol_of(one.protocol),
        "warnings": [str(text) for text in _listed(one.detail.get("warnings"))],
        **{name: _number(one, name) for name in times},
        **{name: _finite(one.detail.get(name)) for name in others},
    }
    return {name: value for name, value in told.items() if value not in (None, "", [])}


def comparison_of(one: Measurement) -> dict[str, Any] | None:
    """A comparison as a report shows it; None: this is not one, or it is damaged."""
    found, other = one.detail, one.detail.get("other")
    if one.kind is not MeasurementKind.COMPARISON or not isinstance(other, Mapping):
        return None
    beside = other.get("percentiles")
    other_p50 = _finite(beside.get("p50")) if isinstance(beside, Mapping) else None
    numbers = {name: _finite(found.get(name)) for name in ("ratio", "low", "high", "floor")}
    numbers |= {"p50": _number(one, "p50"), "other_p50": other_p50}
    if None in numbers.values():
        return None
    low, high, floor = (cast("float", numbers[name]) for name in ("low", "high", "floor"))
    return {
        **view_of(one),
        **numbers,
        "verdict": str(found.get("verdict")),
        "why": str(found.get("why", "")),
        "told": interval_of(low, high, floor),
        "against": str(other.get("cell") or other.get("name")),
        "against_on": str(other.get("on")),
        "tree": str(other.get("tree")),
    }


def interval_of(low: float, high: float, floor: float) -> str:
    """The interval of a ratio of latencies, and how much the ratio of equal ones differs."""
    return f"95 % interval {low - 1:+.1%} to {high - 1:+.1%}, noise floor {floor:.1%}"


def protocol_of(told: Mapping[str, Any]) -> str:
    """`3 sessions of 500 runs after 20 to warm up`."""
    sessions, runs = told.get("sessions"), told.get("iterations")
    if not isinstance(sessions, int) or not isinstance(runs, int):
        return ""
    text = f"{counted(sessions, 'session')} of {counted(runs, 'run')}"
    if told.get("warmup"):
        text += f" after {told['warmup']} to warm up"
    return text + (f", {counted(told['threads'], 'thread')}" if told.get("threads") else "")


def _chosen(measurements: Sequence[Measurement], stamp: str) -> dict[Key, Measurement]:
    found: dict[Key, Measurement] = {}
    for one in measurements:
        if one.kind is not MeasurementKind.BENCHMARK:
            continue
        protocol = tuple(sorted((name, str(value)) for name, value in one.protocol.items()))
        key = (one.component, one.runtime, one.provider, one.device, one.emulated, protocol)
        known = found.get(key)
        if known is None or one.stamp == stamp or known.stamp != stamp:
            found[key] = one
    return found


def _notes(one: Measurement, other: Measurement) -> Iterator[str]:
    if one.version != other.version:
        yield f"runtime {one.version} -> {other.version}"
    if one.machine != other.machine:
        yield f"on another machine: {one.machine} -> {other.machine}"


def _number(one: Measurement, name: str) -> float | None:
    return _finite(one.percentiles.get(name))


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def _sessions(one: Measurement) -> list[float]:
    return [value for value in _listed(one.detail.get("sessions")) if isinstance(value, float)]


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
