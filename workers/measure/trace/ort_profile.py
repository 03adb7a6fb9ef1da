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
    r'\{"cat"\s*:\s*"(\w+)",.*?"dur"\s*:\s*(\d+),"ts"\s*:\s*(\d+),.*?"name"\s*:\s*"(.*?)","args"'
)
_INDEX = re.compile(r'"node_index"\s*:\s*"(\d{1,9})"')
_PROVIDER = re.compile(r'"provider"\s*:\s*"(\w+)"')
_TYPE = re.compile(r'"op_name"\s*:\s*"(.*?)"')
_OUTPUT = re.compile(r'"output_type_shape"\s*:\s*\[\{"(\w+)"\s*:\s*\[([\d,\s]*)\]')
_KERNEL = "_kernel_time"
_CONTAINERS = {"If", "Loop", "Scan", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}


def read_profile(path: Path, window: Window) -> Readings:
    """The measured runs. Raises `Unreadable` or `NoData`."""
    profile = _Profile()
    events = _read(path, profile)
    if not profile.names:
        raise NoData(f"{path.name} holds no operators")
    if len(profile.runs) != window.runs:
        why = f"; ONNX Runtime keeps no more than {MOST_EVENTS:,} events" * (events >= MOST_EVENTS)
        raise Unreadable(
            f"{path.name} holds {len(profile.runs)} runs, and {window.warmup} to warm up and "
            f"{window.iterations} measured ones make {window.runs}{why}"
        )
    runs = profile.runs[window.warmup :]
    inference = tuple(float(run.time) for run in runs)
    return Readings(
        series=tuple(_series(profile, runs)),
        summary=Summary(inference_us=fmean(inference)),
        samples=len(runs),
        inference=inference,
    )


@dataclass(slots=True)
class _Run:
    """One run: its operators, and when each began."""

    keys: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    time: int = 0

    def add(self, key: int, start: int, time: int, *, contains: bool) -> None:
        """An operator; what it contains has been added before it."""
        while contains and self.starts and self.starts[-1] >= start:
            for values in (self.keys, self.times, self.starts):
                values.pop()
        self.keys.append(key)
        self.times.append(time)
        self.starts.append(start)


@dataclass(slots=True)
class _Profile:
    runs: list[_Run] = field(default_factory=list)
    names: list[tuple[int, str]] = field(default_factory=list)
    """Index and name of every operator."""
    facts: list[dict[str, Any]] = field(default_factory=list)
    places: dict[tuple[str, str], int] = field(default_factory=dict)

    def place(self, line: str, name: str) -> int:
        """Where the operator of an event stands; below 0: it is none."""
        index = _INDEX.search(line)
        if index is None:
            return -1
        key = (index[1], name)
        if key not in self.places:
            self.places[key] = len(self.names)
            self.names.append((int(index[1]), name.removesuffix(_KERNEL)))
            self.facts.append(_facts(line))
        return self.places[key]


def _read(path: Path, profile: _Profile) -> int:
    run, events, closed = _Run(), 0, False
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
                contains = profile.facts[place]["op_type"] in _CONTAINERS
                run.add(place, int(start), int(time), contains=contains)
        elif name == "model_run":
            run.time = int(time)
            profile.runs.append(run)
            run = _Run()
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


def _series(profile: _Profile, runs: list[_Run]) -> Iterator[Series]:
    found: dict[int, Series] = {}
    for run in runs:
        times: dict[int, int] = {}
        for key, time in zip(run.keys, run.times, strict=True):
            times[key] = times.get(key, 0) + time
        for key, time in times.items():
            if key not in found:
                index, name = profile.names[key]
                found[key] = Series(name, index, len(found), facts=profile.facts[key])
            found[key].values.append(float(time))
            found[key].shares += time / run.time if run.time else 0.0
    yield from found.values()
