"""Reads the profile that ONNX Runtime writes: one event in a line, in the order in which they end.

A run ends with its event `model_run`. An operator with a graph inside (a loop) contains the time of
that graph's operators, which are left out: they would count twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import msgspec

from workers.measure.trace.operators import (
    NoData,
    Readings,
    Series,
    Unreadable,
    Window,
    regular_size,
)
from workers.measure.trace.result import Summary

MOST_EVENTS = 1_000_000
"""ONNX Runtime drops what comes after these."""
LONGEST_LINE = 1024 * 1024
_CHUNK = 1024 * 1024
_PATTERN = re.compile(
    rb'\{"cat"\s*:\s*"(\w+)"(?:,"[pt]id"\s*:\s*\d+)*,"dur"\s*:\s*(\d{1,18})'
    rb',"ts"\s*:\s*(\d{1,18})(?:,"ph"\s*:\s*"\w")?,"name"\s*:\s*"(.*?)","args"'
)
_INDEX = re.compile(rb'"node_index"\s*:\s*"(\d*)"')
_OUTPUT = re.compile(rb'"output_type_shape"\s*:\s*\[\{"(\w+)"\s*:\s*\[([\d,\s]*)\]')
_PROVIDER = re.compile(rb'"provider"\s*:\s*"(\w+)"')
_TYPE = re.compile(rb'"op_name"\s*:\s*"(.*?)"')
_KERNEL = "_kernel_time"
_CONTAINERS = {"If", "Loop", "Scan", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}
_Microseconds = Annotated[int, msgspec.Meta(ge=0, lt=10**18)]


class _Args(msgspec.Struct, gc=False):
    node_index: str = ""


class _Event(msgspec.Struct, gc=False):
    cat: str
    dur: _Microseconds
    ts: _Microseconds
    name: str
    args: _Args


def read_profile(path: Path, window: Window) -> Readings:
    """The measured runs. Raises `Unreadable` or `NoData`."""
    profile = _Profile(window.warmup)
    events = _read(path, profile)
    if not profile.series:
        raise NoData(f"{path.name} holds no operators")
    why = f"; ONNX Runtime keeps no more than {MOST_EVENTS:,} events" * (events >= MOST_EVENTS)
    window.check(path.name, profile.runs, "runs", why=why)
    return Readings(
        series=tuple(one for one in profile.series if one.values),
        summary=Summary(inference_us=fmean(profile.inference)),
        samples=len(profile.inference),
        inference=tuple(profile.inference),
    )


@dataclass(slots=True)
class _Profile:
    warmup: int
    runs: int = 0
    inference: list[float] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    """The place of an operator in the series, by its index and name."""
    containers: set[int] = field(default_factory=set)
    """Places of operators with a graph inside."""
    run: list[tuple[int, int, int]] = field(default_factory=list)
    """Of the present run: place, start and time of each operator."""

    def new_place(self, event: _Event, line: bytes) -> int:
        """The place of an operator that was not there before; below 0: it is none."""
        index, name = event.args.node_index, event.name
        if not (index.isascii() and index.isdigit() and len(index) < 10):
            return -1
        place = self.places[index, name] = len(self.series)
        facts = _facts(line)
        self.series.append(Series(name.removesuffix(_KERNEL), int(index), place, facts=facts))
        if facts["op_type"] in _CONTAINERS:
            self.containers.add(place)
        return place

    def add(self, place: int, start: int, time: int) -> None:
        """An operator; what it contains has been added before it."""
        while place in self.containers and self.run and self.run[-1][1] >= start:
            self.run.pop()
        self.run.append((place, start, time))

    def end_run(self, whole: int) -> None:
        """Keep the times of a run that counts."""
        self.runs += 1
        if self.runs > self.warmup:
            self.inference.append(float(whole))
            times: dict[int, int] = {}
            for place, _start, time in self.run:
                times[place] = times.get(place, 0) + time
            for place, time in times.items():
                one = self.series[place]
                one.values.append(float(time))
                one.shares += time / whole if whole else 0.0
        self.run = []


def _read(path: Path, profile: _Profile) -> int:
    events, closed = 0, False
    decode = msgspec.json.Decoder(_Event).decode
    for number, line in enumerate(_lines(path), 1):
        try:
            event = decode(line.rstrip(b",\r"))
        except ValueError:
            found = line.strip()
            closed = found == b"]" or (closed and not found)
            if closed or found == b"[":
                continue
            event = _by_pattern(path, number, line)
        events += 1
        if event.cat == "Node" and event.name.endswith(_KERNEL):
            place = profile.places.get((event.args.node_index, event.name), -1)
            if place < 0:
                place = profile.new_place(event, line)
            if place >= 0:
                profile.add(place, event.ts, event.dur)
        elif event.name == "model_run":
            profile.end_run(event.dur)
    if not closed:
        raise Unreadable(f"{path.name} is cut off")
    return events


def _by_pattern(path: Path, number: int, line: bytes) -> _Event:
    """ONNX Runtime writes names as they are: quotes in them make a line invalid JSON."""
    match = _PATTERN.match(line)
    if match is None:
        raise Unreadable(f"{path.name}:{number}: this is not an event of ONNX Runtime")
    category, time, start, name = match.groups()
    index = _INDEX.search(line, match.end())
    args = _Args(_text(index[1])) if index else _Args()
    return _Event(_text(category), int(time), int(start), _text(name), args)


def _lines(path: Path) -> Iterator[bytes]:
    """Without their ends. Large profiles are not decoded: that takes longer than reading them."""
    left = regular_size(path)
    if left == 0:
        raise NoData(f"{path.name} is empty")
    with path.open("rb", buffering=0) as stream:
        rest, number = b"", 0
        while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
            left -= len(chunk)
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            number += len(lines)
            if len(rest) > LONGEST_LINE:
                raise Unreadable(f"{path.name}:{number + 1}: the event does not end")
            yield from lines
        yield rest


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _facts(line: bytes) -> dict[str, Any]:
    provider, kind, output = (one.search(line) for one in (_PROVIDER, _TYPE, _OUTPUT))
    found: dict[str, Any] = {
        "op_type": _text(kind[1]) if kind else None,
        "provider": _text(provider[1]) if provider else None,
    }
    if output is not None:
        found["data_type"] = _text(output[1])
        found["dims"] = tuple(int(one) for one in output[2].split(b",") if one.strip())
    return found
