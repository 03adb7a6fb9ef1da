"""How long the remaining trials will take, and whether they fit the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from matrix.trials import SessionKind
from workers.measure.comparison import ROUNDS, SETTLE
from workers.measure.result import Benchmark, Protocol

ARMS = 3
OPENINGS = 2
"""Of each arm in a session."""


class OutOfTime(Exception):
    """The next step does not fit into the budget; says which one."""


@dataclass(slots=True)
class Estimates:
    """Seconds by what they are spent on: a guess from the baseline, then what was seen."""

    guesses: dict[str, float] = field(default_factory=dict)
    seen: dict[str, list[float]] = field(default_factory=dict)

    def guess(
        self, making: float, found: Benchmark, protocols: dict[SessionKind, Protocol]
    ) -> None:
        """From how long the baseline took to build, and how long one of its runs takes."""
        self.guesses["make"] = making
        run = sum(graph.latency.p50 for graph in found.graphs if graph.latency) / 1000
        opening = sum(one.open_warm for graph in found.graphs for one in graph.sessions[:1])
        for kind, protocol in protocols.items():
            turn = (protocol.warmup + protocol.iterations + ROUNDS) * run + ROUNDS * SETTLE
            self.guesses[kind.value] = protocol.sessions * ARMS * (turn + OPENINGS * opening)

    def note(self, what: str, seconds: float) -> None:
        """What something has taken."""
        self.seen.setdefault(what, []).append(seconds)

    def of(self, what: str) -> float:
        """What it will take."""
        return fmean(self.seen[what]) if what in self.seen else self.guesses.get(what, 0.0)

    def trial(self) -> float:
        """A whole one that turns out well: built, screened, compared and confirmed."""
        return self.of("make") + sum(map(self.of, SessionKind))

    def usual(self) -> float:
        """A whole one that is not confirmed."""
        return self.trial() - self.of(SessionKind.CONFIRMATION)


@dataclass(slots=True)
class Budget:
    """The time that this run of a tuning may take."""

    clock: Callable[[], float]
    seconds: float | None = None
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self.clock() - self.began

    def need(self, seconds: float, what: str) -> None:
        """Raise `OutOfTime` unless so much is left."""
        if self.seconds is not None and self.spent + seconds > self.seconds:
            raise OutOfTime(what)
