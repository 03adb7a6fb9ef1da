"""What a tuning works with: whoever builds, measures and plans for it, and shows what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from flows.output.quantity import show_duration
from flows.tune.record import Making, Step, Trial
from machine.waits import untold
from matrix.model import Cell, Profile
from matrix.verification import Rung
from workers.build.built import Built
from workers.measure.benchmark import Driver
from workers.measure.result import Benchmark
from workers.measure.subject import Graph, Subject
from workers.measure.trace.result import Trace


@dataclass(frozen=True, slots=True)
class Made:
    """A build that can be measured until it is released."""

    cell: str
    tree: str
    artifact: str
    """The digest of what is measured: equal ones need not be measured twice."""
    making: Making
    subject: Subject
    built: Built | None = None
    """None in tests that build nothing."""

    def release(self) -> None:
        """Give up the local bytes; the store keeps its own."""
        if self.built is not None:
            self.built.release()


@dataclass(frozen=True, slots=True)
class Planned:
    """What is tried of a model, in order."""

    steps: Sequence[Step]
    insight: Mapping[str, Any] = field(default_factory=dict)
    architecture: str = ""
    notes: Sequence[str] = ()


@dataclass(slots=True)
class Shown:
    """What a tuning reports while it runs."""

    line: Callable[[str], object] = lambda _text: None
    trial: Callable[[Trial, str], object] = lambda _trial, _place: None
    """A trial that has its verdict, and its place among those that are tried: `3/8`."""
    now: Callable[[str], object] = untold
    """What is done now."""
    _doing: str = ""

    def doing(self, text: str, left: float) -> None:
        """Say what is done now, and about how many seconds are left."""
        self._doing = f"{text}; about {show_duration(left)} left" if left else text
        self.now(self._doing)

    def detail(self, text: str) -> None:
        """Say how far that is, or what it waits for."""
        self.now(f"{self._doing}; {text}" if self._doing else text)


class Place(Protocol):
    """Where a tuning works; tests put their own in place of processes and clocks."""

    shown: Shown

    def make(self, cell: Cell, session: Mapping[str, str]) -> Made:
        """Build a cell; `session`: how it is opened. Raises `BuildFailed`, and `UsageError` if this
        machine cannot measure it."""

    def check(self, made: Made) -> tuple[Rung, ...]:
        """The rungs of the ladder, up to the task metric. Raises `BuildFailed`."""

    def plan(self, baseline: Made, found: Benchmark) -> Planned:
        """What is tried, from the baseline and its times."""

    def profile(self, glob: str) -> Profile | None:
        """The device profile for a glob; None: none that works here."""

    def driver(self) -> Driver:
        """What runs models."""

    def trace(self, made: Made, graph: Graph) -> Trace:
        """The trace of a graph of a build."""

    def quiet(self, what: str) -> AbstractContextManager[None]:
        """A time without other work on this machine."""

    def rest(self, seconds: float) -> object:
        """Let the device recover."""

    def clock(self) -> float:
        """Seconds."""
