"""Reads the profiling CSV of the QNN execution provider.

An execution is one pass through one part of the graph. It begins with the row of its accelerator
cycles, and the rows of its operators follow. Rows about the whole execution stand before or after
these: one that the present execution has already belongs to the next.

Every execution has its own ratio of time to cycles, because clocks change. A provider that takes
several parts of a graph executes them one after another; together they are one sample.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import fmean

from workers.measure.trace.operators import (
    NoData,
    Readings,
    Series,
    Unreadable,
    Window,
    regular_size,
)
from workers.measure.trace.result import Summary

HEADER = (
    "Msg Timestamp", "Message", "Time", "Unit of Measurement", "Timing Source", "Event Level",
    "Event Identifier",
)  # fmt: skip
LONGEST_LINE = 64 * 1024
_CYCLES = "Accelerator (execute) time (cycles)"
_WHOLE = {
    "Accelerator (execute) time": "time",
    "QNN (execute) time": "execute",
    "Number of HVX threads used": "threads",
}
_UNITS = {"time": "US", "execute": "US", "threads": "COUNT"}
_OPERATOR = re.compile(r"(.*)[ :]OpId_(\d{1,19}) \(cycles\)")
_TOKEN = re.compile(r"_token_\d+(_\d+)?$")


def read_csv(path: Path, window: Window | None = None, partitions: int | None = None) -> Readings:
    """The measured samples of a profile.

    Without a window, all of them; without the number of partitions, it is found in the way the
    operators repeat. Raises `Unreadable` or `NoData`.
    """
    profile = _Profile()
    _read(path, profile)
    executions = [one for one in profile.executions if one.rows]
    if not executions:
        raise NoData(f"{path.name} holds no operators")
    for one in executions:
        if "time" not in one.whole:
            place = profile.executions.index(one) + 1
            raise Unreadable(f"{path.name} is cut off: execution {place} has no accelerator time")
    count = partitions or _period(executions)
    if window is not None:
        window.check(path.name, len(executions), "executions", count)
        executions = executions[window.warmup * count :]
    return _readings(executions, profile.names, count)


@dataclass(slots=True)
class _Execution:
    cycles: float
    whole: dict[str, float] = field(default_factory=dict)
    names: array[int] = field(default_factory=lambda: array("l"))
    """By row, the place of the operator's name in the profile."""
    rows: array[float] = field(default_factory=lambda: array("d"))
    """Cycles by row."""


@dataclass(slots=True)
class _Profile:
    executions: list[_Execution] = field(default_factory=list)
    names: list[tuple[int, str]] = field(default_factory=list)
    """Number and path of every operator."""
    early: dict[str, float] = field(default_factory=dict)
    """Rows that belong to the next execution."""

    def begin(self, cycles: float) -> _Execution:
        """What was early is the new execution's."""
        one = _Execution(cycles, self.early)
        self.executions.append(one)
        self.early = {}
        return one

    def whole(self, key: str, value: float) -> None:
        """A row about a whole execution."""
        last = self.executions[-1].whole if self.executions else self.early
        if key in last:
            last = self.early
        last[key] = value


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    size = regular_size(path)
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as stream:
        number, left = 0, size
        while line := stream.readline(LONGEST_LINE):
            number += 1
            left -= len(line)
            if left < 0:
                return  # somebody is still writing it
            if len(line) == LONGEST_LINE:
                raise Unreadable(f"{path.name}:{number}: the row does not end")
            yield number, line


def _read(path: Path, profile: _Profile) -> None:
    lines = _lines(path)
    _check_header(path, next(lines, (1, ""))[1])
    places: dict[str, int] = {}
    """By identifier; below 0: not an operator."""
    execution: _Execution | None = None
    for number, line in lines:
        fields = line.split(",", 6)
        if len(fields) < 7:
            if line.strip():
                raise Unreadable(f"{path.name}:{number}: the row has {len(fields)} of 7 fields")
            continue
        _time, message, value, unit, _source, level, identifier = fields
        if message == "NODE":
            if level != "SUB-EVENT" or unit != "CYCLES":
                continue
            place = places.get(identifier)
            if place is None:
                place = places[identifier] = _new_name(profile, identifier)
            if place < 0 or execution is None:
                continue
            execution.names.append(place)
            execution.rows.append(_number(path, number, value))
        elif level == "ROOT":
            name = _plain(identifier)
            if name == _CYCLES and unit == "CYCLES":
                execution = profile.begin(_number(path, number, value))
            elif (key := _WHOLE.get(name)) and unit == _UNITS[key]:
                profile.whole(key, _number(path, number, value))


def _check_header(path: Path, line: str) -> None:
    if not line:
        raise NoData(f"{path.name} is empty")
    found = [_plain(one) for one in line.split(",")]
    if found[: len(HEADER)] != list(HEADER):
        lacking = [name for name in HEADER if name not in found]
        what = f"lacks {', '.join(lacking)}" if lacking else "has them in another order"
        raise Unreadable(f"{path.name} does not begin with the columns of a QNN profile: it {what}")


def without_token(name: str) -> str:
    """The name of an operator without what QNN's compiler appends to tell copies apart."""
    return _TOKEN.sub("", name)


def _plain(text: str) -> str:
    return text.strip().strip('"').strip()


def _unquoted(field: str) -> str:
    """The last field of a row as it was before it was quoted: a name may begin with a blank."""
    text = field.rstrip()
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return text[1:-1].replace('""', '"') if quoted else text


def _new_name(profile: _Profile, identifier: str) -> int:
    match = _OPERATOR.fullmatch(_unquoted(identifier))
    if not match:
        return -1
    # A node without a name in the graph has none here either.
    profile.names.append((int(match[2]), without_token(match[1]) or f"OpId_{match[2]}"))
    return len(profile.names) - 1


def _number(path: Path, number: int, text: str) -> float:
    if text.isdigit() and text.isascii():
        return float(text)
    with suppress(ValueError):
        value = float(text)
        if 0 <= value < inf:
            return value
    raise Unreadable(f"{path.name}:{number}: '{text[:40]}' is not a count")


def _period(executions: Sequence[_Execution]) -> int:
    """After how many executions the same operators come again; 1 if they never do."""
    kinds = [frozenset(one.names) for one in executions]
    for length in range(1, len(kinds) // 2 + 1):
        if len(kinds) % length == 0 and all(
            one == kinds[place % length] for place, one in enumerate(kinds)
        ):
            return length
    return 1


def _readings(
    executions: Sequence[_Execution], names: Sequence[tuple[int, str]], partitions: int
) -> Readings:
    groups = [
        executions[start : start + partitions] for start in range(0, len(executions), partitions)
    ]
    series: dict[tuple[int, int], Series] = {}
    for group in groups:
        whole = sum(one.whole["time"] for one in group)
        for part, one in enumerate(group):
            _add(series, names, part, one, whole)
    if partitions > 1:
        for (part, _op), found in series.items():
            found.facts["partition"] = part
    return Readings(
        series=tuple(series.values()),
        summary=_summary(groups),
        samples=len(groups),
        inference=tuple(float(sum(one.whole["time"] for one in group)) for group in groups),
        partitions=partitions,
    )


def _add(
    series: dict[tuple[int, int], Series],
    names: Sequence[tuple[int, str]],
    part: int,
    execution: _Execution,
    whole: float,
) -> None:
    """The operators of one execution; `whole`: microseconds of the sample that it belongs to."""
    ratio = execution.whole["time"] / execution.cycles if execution.cycles else 0.0
    cycles: dict[int, float] = {}
    for place, value in zip(execution.names, execution.rows, strict=True):
        op_id = names[place][0]
        cycles[op_id] = cycles.get(op_id, 0.0) + value
        if (part, op_id) not in series:
            series[part, op_id] = Series(names[place][1], op_id, len(series))
    for op_id, value in cycles.items():
        one = series[part, op_id]
        one.values.append(value * ratio)
        one.shares += value * ratio / whole if whole else 0.0


def _summary(groups: Sequence[Sequence[_Execution]]) -> Summary:
    time = fmean(sum(one.whole["time"] for one in group) for group in groups)
    threads = [one.whole["threads"] for group in groups for one in group if "threads" in one.whole]
    executes = [
        sum(one.whole["execute"] for one in group)
        for group in groups
        if all("execute" in one.whole for one in group)
    ]
    return Summary(
        inference_us=time,
        accelerator_us=time,
        accelerator_cycles=fmean(sum(one.cycles for one in group) for group in groups),
        execute_us=fmean(executes) if executes else None,
        hvx_threads=int(max(threads)) if threads else None,
    )
