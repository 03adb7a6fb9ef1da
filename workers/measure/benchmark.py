"""Measures one subject: each graph in separate sessions.

A session opens models in new processes, runs them in turns, and returns their results.
"""

from __future__ import annotations

import base64
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median
from typing import Any

import psutil

from matrix.status import FailureClass
from workers.errors import BuildFailed
from workers.host.watch import UNWATCHED, Watching
from workers.measure.result import (
    Benchmark,
    Fault,
    GraphResult,
    Latency,
    Protocol,
    Session,
    this_machine,
)
from workers.measure.subject import Graph, Subject
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime

STAGE = "measure"
_MOST = 64 * 2**20
"""Bytes of unpacked times; more is damage."""
_CLASSES = {"feed": FailureClass.UNSUPPORTED}
"""Of failures that the runtime reports; others are unknown."""
BUSY = 0.1
"""A share of the processors that a user is warned of."""
SHORTEST = 0.5
"""Seconds; the system counts in steps of a hundredth, so a shorter time says nothing."""


@dataclass(slots=True)
class Load:
    """Summed over the windows in which something was measured."""

    wall: float = 0.0
    busy: float = 0.0
    own: float = 0.0
    """Seconds of the processors that the measured processes report."""

    @contextmanager
    def window(self) -> Iterator[None]:
        """Watch the machine during the block."""
        began, busy, own = time.monotonic(), _busy(), time.process_time()
        yield
        self.wall += time.monotonic() - began
        self.busy += _busy() - busy
        self.own += time.process_time() - own

    @property
    def others(self) -> float:
        """The share of the processors that other processes used."""
        if self.wall < SHORTEST:
            return 0.0
        return max(0.0, (self.busy - self.own) / (self.wall * (psutil.cpu_count() or 1)))

    def warnings(self) -> list[str]:
        """What a user should know about it."""
        if self.others <= BUSY:
            return []
        return [f"other processes used {self.others:.0%} of the processors meanwhile"]


def _busy() -> float:
    """Seconds that all processors have worked since the machine was started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


@dataclass(frozen=True, slots=True)
class Arm:
    """A graph on a runtime, under a key that is unique in its session."""

    key: str
    graph: Graph
    runtime: Runtime


@dataclass(frozen=True, slots=True)
class Turn:
    """So many counted runs of one arm, after some that are not counted."""

    key: str
    iterations: int
    warmup: int = 0
    settle: float = 0.0
    """At least so many seconds of runs that are not counted."""


@dataclass(slots=True)
class Outcome:
    """What a session has found of one arm."""

    opened: Mapping[str, Any] = field(default_factory=dict)
    blocks: list[list[int]] = field(default_factory=list)
    """The times of each turn in nanoseconds."""
    grown: int = 0

    @property
    def times(self) -> list[int]:
        """Of all turns."""
        return [one for block in self.blocks for one in block]

    def session(self) -> Session:
        """As results keep it."""
        return Session(
            open_cold=self.opened["open_cold"],
            open_warm=self.opened["open_warm"],
            open_memory=self.opened["open_memory"],
            run_memory=max(0, self.grown),
            p50=median(self.times) / 1e6,
            samples=pack(self.times),
        )

    def to_json(self) -> dict[str, Any]:
        """To be kept."""
        return {
            "opened": dict(self.opened),
            "turns": [len(block) for block in self.blocks],
            "times": pack(self.times),
            "grown": self.grown,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Outcome:
        """What `to_json` gave. Raises `ValueError` or `LookupError` for anything else."""
        times = iter(unpack(value["times"]))
        blocks = [list(islice(times, count)) for count in value["turns"]]
        if any(len(block) != count for block, count in zip(blocks, value["turns"], strict=True)):
            raise ValueError("there are fewer times than the turns say")
        return cls(dict(value["opened"]), blocks, int(value["grown"]))


class Broken(Exception):
    """An arm cannot be measured."""

    def __init__(self, key: str, fault: Fault) -> None:
        super().__init__(fault.message)
        self.key = key
        self.fault = fault


@dataclass(slots=True)
class Driver:
    """Runs sessions in the hosts of runtimes."""

    runtimes: Runtimes
    watching: Watching = UNWATCHED
    """Of each request."""
    load: Load = field(default_factory=Load)
    _label: str = ""

    def session(self, arms: Sequence[Arm], turns: Sequence[Turn], label: str) -> dict[str, Outcome]:
        """Open the arms in this order, give them their turns, close them.

        Raises `Broken` for the first arm that fails, with all processes ended.
        """
        by_key = {arm.key: arm for arm in arms}
        self._label = label
        try:
            for arm in arms:
                self.runtimes.renew(arm.runtime)
            found = {arm.key: Outcome(self._ask(arm, "bench_open", arm.graph.arguments))
                     for arm in arms}  # fmt: skip
            for turn in turns:
                self._turn(by_key[turn.key], turn, found[turn.key])
            for arm in arms:
                self._ask(arm, "bench_close", {})
        finally:
            for arm in arms:
                self.runtimes.renew(arm.runtime)
        return found

    def _turn(self, arm: Arm, turn: Turn, found: Outcome) -> None:
        args = {
            "iterations": turn.iterations, "warmup": turn.warmup, "settle": turn.settle,
        }  # fmt: skip
        with self.load.window():
            told = self._ask(arm, "bench_run", args)
        self.load.own += told["cpu"]
        found.grown += told["memory"]
        if turn.iterations:
            found.blocks.append(told["times"])

    def _ask(self, arm: Arm, op: str, args: Mapping[str, Any]) -> dict[str, Any]:
        def told_of(text: str) -> None:
            self.watching.progress(f"{self._label}: {text}")

        try:
            told: dict[str, Any] = self.runtimes.call(
                arm.runtime,
                op,
                {**args, "key": arm.key},
                replace(self.watching, progress=told_of),
                stage=STAGE,
            ).result
        except BuildFailed as error:
            fault = Fault("crash", error.failure.value, error.reason, error.log_tail)
            raise Broken(arm.key, fault) from error
        if told.get("error"):
            failure = _CLASSES.get(told["at"], FailureClass.UNKNOWN)
            raise Broken(arm.key, Fault(told["at"], failure.value, told["error"]))
        return told


def pack(nanoseconds: Sequence[int]) -> str:
    """Times of runs as text that a database or JSON keeps in two bytes each."""
    content = struct.pack(f"<{len(nanoseconds)}Q", *nanoseconds)
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")


def unpack(text: str) -> list[int]:
    """What `pack` was given. Raises `ValueError` for anything else."""
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(base64.b64decode(text, validate=True), _MOST)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"the times cannot be unpacked: {error}") from None
    if not unpacker.eof or len(content) % 8:
        raise ValueError("the times cannot be unpacked: they are cut off")
    return list(struct.unpack(f"<{len(content) // 8}Q", content))


DRIFT = 0.05
"""A change from the first to the last session that a user is warned of."""


def benchmark(driver: Driver, subject: Subject, protocol: Protocol) -> Benchmark:
    """Measure all graphs; one that fails does not keep the others from it."""
    began, clock = time.time(), time.monotonic()
    graphs = tuple(_measured(driver, subject, graph, protocol) for graph in subject.graphs)
    seconds = time.monotonic() - clock
    return result_of(subject, protocol, began, seconds, graphs, driver.load.warnings())


def _measured(driver: Driver, subject: Subject, graph: Graph, protocol: Protocol) -> GraphResult:
    arm = Arm("this", graph, subject.runtime)
    turns = [Turn("this", protocol.iterations, protocol.warmup)]
    outcomes: list[Outcome] = []
    try:
        for number in range(1, protocol.sessions + 1):
            label = f"session {number} of {protocol.sessions}"
            outcomes.append(driver.session([arm], turns, label)["this"])
    except Broken as broken:
        return GraphResult(graph.component, fault=broken.fault)
    return graph_result(graph.component, outcomes)


def graph_result(component: str, outcomes: Sequence[Outcome]) -> GraphResult:
    """What all sessions of a graph have found."""
    opened: Any = outcomes[0].opened
    times = [one for outcome in outcomes for one in outcome.times]
    return GraphResult(
        component,
        inputs=opened["inputs"],
        nodes=opened["nodes"],
        latency=Latency.of(times),
        sessions=tuple(outcome.session() for outcome in outcomes),
    )


def result_of(
    subject: Subject,
    protocol: Protocol,
    began: float,
    seconds: float,
    graphs: tuple[GraphResult, ...],
    warnings: Sequence[str],
) -> Benchmark:
    """The result, with warnings that follow from its own numbers."""
    return Benchmark(
        artifact=subject.artifact,
        runtime=subject.runtime,
        machine=this_machine(),
        protocol=protocol,
        began=round(began, 3),
        seconds=round(seconds, 3),
        graphs=graphs,
        warnings=(*warnings, *(text for graph in graphs for text in _doubts(graph))),
    )


def _doubts(graph: GraphResult) -> list[str]:
    if len(graph.sessions) < 2 or not graph.sessions[0].p50:
        return []
    change = graph.sessions[-1].p50 / graph.sessions[0].p50 - 1
    if abs(change) <= DRIFT:
        return []
    about = f"{graph.component}: " if graph.component else ""
    word = "slower" if change > 0 else "faster"
    said = f"{about}the last session was {abs(change):.0%} {word} than the first"
    return [f"{said}: drift or heat; let the machine cool down, or measure again"]
