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
from typing import Any

from workers.measure.trace.errors import NoData, Unreadable
from workers.measure.trace.operators import Series
from workers.measure.trace.readings import Readings, Window, regular_size
from workers.measure.trace.result import Summary

MOST_EVENTS = 1_000_000
"""ONNX Runtime drops what comes after these."""
LONGEST_LINE = 1024 * 1024
_EVENT = re.compile(
    r'\{"cat"\s*:\s*"(\w+)"(?:,"[pt]id"\s*:\s*\d+)*,"dur"\s*:\s*(\d+),"ts"\s*:\s*(\d+)'
    r'(?:,"ph"\s*:\s*"\w")?,"name"\s*:\s*"(.*?)","args"'
)
_INDEX = '"node_index"'
_PROVIDER = re.compile(r'"provider"\s*:\s*"(\w+)"')
_TYPE = re.compile(r'"op_name"\s*:\s*"(.*?)"')
_OUTPUT = re.compile(r'"output_type_shape"\s*:\s*\[\{"(\w+)"\s*:\s*\[([\d,\s]*)\]')
_KERNEL = "_kernel_time"
_CONTAINERS = {"If", "Loop", "Scan", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}


def read_profile(path: Path, window: Window) -> Readings:
    """The measured runs. Raises `Unreadable` or `NoData`."""
    profile = _Profile(window.warmup)
    events = _read(path, profile)
    if not profile.series:
        raise NoData(f"{path.name} holds no operators")
    if profile.runs != window.runs:
        why = f"; ONNX Runtime keeps no more than {MOST_EVENTS:,} events" * (events >= MOST_EVENTS)
        raise Unreadable(
            f"{path.name} holds {profile.runs} runs, and {window.warmup} to warm up and "
            f"{window.iterations} measured ones make {window.runs}{why}"
        )
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

    def place(self, line: str, name: str) -> int:
        """Where the operator of an event stands; below 0: it is none."""
        # Not a regular expression: this is most of the time of reading a large profile.
        begin = line.find('"', line.find(_INDEX) + len(_INDEX)) + 1
        index = line[begin : line.find('"', begin)]
        place = self.places.get((index, name), -1)
        if place < 0 and _INDEX in line and index.isdigit() and len(index) < 10:
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
    for number, line in _lines(path):
        match = _EVENT.match(line)
        if match is None:
            closed = line.strip() == "]"
            if not closed and line.strip() != "[":
                raise Unreadable(f"{path.name}:{number}: this is no event of ONNX Runtime")
            continue
        events += 1
        category, time, start, name = match.groups()
        if category == "Node" and name.endswith(_KERNEL):
            place = profile.place(line, name)
            if place >= 0:
                profile.add(place, int(start), int(time))
        elif name == "model_run":
            profile.end_run(int(time))
    if not closed:
        raise Unreadable(f"{path.name} is cut off")
    return events


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if regular_size(path) == 0:
        raise NoData(f"{path.name} is empty")
    with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise Unreadable(f"{path.name}:{number}: the event does not end")
            yield number, line


def _facts(line: str) -> dict[str, Any]:
    provider, kind, output = (one.search(line) for one in (_PROVIDER, _TYPE, _OUTPUT))
    found: dict[str, Any] = {
        "op_type": kind[1] if kind else None,
        "provider": provider[1] if provider else None,
    }
    if output is not None:
        found["data_type"] = output[1]
        found["dims"] = tuple(int(one) for one in output[2].split(",") if one.strip())
    return found
