"""Compares two subjects: their graphs take turns, and the second one runs twice (null run)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from matrix.errors import UsageError
from workers.measure.benchmark import Arm, Broken, Driver, Outcome, Turn, graph_result, result_of
from workers.measure.result import Benchmark, Fault, GraphResult, Protocol
from workers.measure.subject import Graph, Subject
from workers.measure.verdict import Judgement, Round, judge

THIS, OTHER, NULL = "this", "other", "null"
ROUNDS = 20
"""Of a session; fewer if there are fewer iterations."""
SETTLE = 0.003
"""Seconds of runs at the beginning of a turn that are not counted: caches and threads still belong
to the model that ran before."""


@dataclass(frozen=True, slots=True)
class GraphComparison:
    """One graph of both subjects; without `judgement` one of them could not be measured."""

    component: str
    judgement: Judgement | None
    null: GraphResult
    """The other model a second time."""
    order: tuple[str, ...]
    """The turns of each session in their order, a letter each: t(his), o(ther), n(ull)."""
    broken: str = ""
    """Which of the three failed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A session of a comparison, which a later run can go on from."""

    component: str
    number: int
    """From 1."""
    order: str
    """Of its turns; another order was made by another protocol or seed."""
    outcomes: Mapping[str, Outcome]

    @property
    def rounds(self) -> list[Round]:
        """The medians of its turns."""
        blocks = (self.outcomes[key].blocks for key in (THIS, OTHER, NULL))
        # A clock that stands still would have no logarithm.
        return [
            Round(*(max(median(block), 1.0) for block in turns))
            for turns in zip(*blocks, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two subjects measured in turns. Both sides are benchmarks by the same protocol."""

    this: Benchmark
    other: Benchmark
    graphs: tuple[GraphComparison, ...]
    seed: int
    """Of the order of the turns."""

    @property
    def failed(self) -> bool:
        """Whether any graph could not be measured."""
        return any(graph.judgement is None for graph in self.graphs)


Compared = tuple[GraphResult, GraphResult, GraphComparison]
"""A graph of the subject, the same graph of the other one, and the two compared."""


@dataclass(slots=True)
class Sessions:
    """Those that an earlier run finished, and what is done with every new one."""

    kept: Sequence[Finished] = ()
    finished: Callable[[Finished], None] = lambda _session: None
    used: list[Finished] = field(default_factory=list)
    """Everything that the comparison was made from."""

    def get(
        self, component: str, number: int, order: str, measure: Callable[[], Mapping[str, Outcome]]
    ) -> Finished:
        """The one that was measured in this order, now if it was not measured before."""
        for one in self.kept:
            if (one.component, one.number, one.order) == (component, number, order):
                break
        else:
            one = Finished(component, number, order, measure())
            self.finished(one)
        self.used.append(one)
        return one


def compare(
    driver: Driver,
    this: Subject,
    other: Subject,
    protocol: Protocol,
    seed: int,
    sessions: Sessions | None = None,
) -> Comparison:
    """Measure both in turns. Raises `UsageError` if their graphs are not the same.

    The seed decides the order of all turns, whichever sessions are there already.
    """
    pairs = _pairs(this, other)
    began, clock = time.time(), time.monotonic()
    sessions = sessions or Sessions()
    found = []
    for number, (one, two) in enumerate(pairs):
        arms = [
            Arm(THIS, one, this.runtime),
            Arm(OTHER, two, other.runtime),
            Arm(NULL, two, other.runtime),
        ]
        found.append(_compared(driver, arms, protocol, seed + number, sessions))
    ours, theirs, graphs = zip(*found, strict=True)
    warnings, seconds = driver.load.warnings(), time.monotonic() - clock
    return Comparison(
        this=result_of(this, protocol, began, seconds, ours, warnings),
        other=result_of(other, protocol, began, seconds, theirs, warnings),
        graphs=graphs,
        seed=seed,
    )


def added(sessions: Sequence[Finished]) -> list[list[Round]]:
    """The rounds of each session, the turns of all graphs added: the model as a whole."""
    found = []
    for number in sorted({one.number for one in sessions}):
        graphs = [one.rounds for one in sessions if one.number == number]
        found.append(
            [
                Round(
                    sum(one.this for one in turns),
                    sum(one.other for one in turns),
                    sum(one.null for one in turns),
                )
                for turns in zip(*graphs, strict=True)
            ]
        )
    return found


def _pairs(this: Subject, other: Subject) -> list[tuple[Graph, Graph]]:
    others = {graph.component: graph for graph in other.graphs}
    components = [graph.component for graph in this.graphs]
    if set(components) != others.keys():
        raise UsageError(
            f"{this.artifact.name} has the graphs {_named(components)}, "
            f"{other.artifact.name} has {_named(list(others))}",
            hint="compare models of the same parts",
        )
    return [(graph, others[graph.component]) for graph in this.graphs]


def _named(components: Sequence[str]) -> str:
    return ", ".join(sorted(one or "(a single one)" for one in components))


def _compared(
    driver: Driver, arms: list[Arm], protocol: Protocol, seed: int, sessions: Sessions
) -> Compared:
    component = arms[0].graph.component
    chance = random.Random(seed)  # noqa: S311 - an order, no secret
    done: list[Finished] = []
    try:
        for number in range(1, protocol.sessions + 1):
            chance.shuffle(arms)
            turns = list(_turns([arm.key for arm in arms], protocol, chance))
            order = "".join(turn.key[0] for turn in turns if turn.iterations)
            label = f"session {number} of {protocol.sessions}"
            measure = partial(driver.session, tuple(arms), turns, label)
            done.append(sessions.get(component, number, order, measure))
    except Broken as broken:
        return _broken(component, broken, tuple(one.order for one in done))
    this, other, null = (
        graph_result(component, [one.outcomes[key] for one in done]) for key in (THIS, OTHER, NULL)
    )
    judgement = judge([one.rounds for one in done], seed)
    orders = tuple(one.order for one in done)
    return this, other, GraphComparison(component, judgement, null, orders)


def _turns(keys: Sequence[str], protocol: Protocol, chance: random.Random) -> Iterator[Turn]:
    """Warm-up, then rounds in which every key has one turn."""
    for key in keys:
        yield Turn(key, 0, protocol.warmup)
    rounds = min(ROUNDS, protocol.iterations)
    for number in range(rounds):
        share = protocol.iterations // rounds + (number < protocol.iterations % rounds)
        for key in chance.sample(keys, len(keys)):
            yield Turn(key, share, 1, SETTLE)


def _broken(component: str, broken: Broken, orders: tuple[str, ...]) -> Compared:
    fault = broken.fault
    side = "the subject" if broken.key == THIS else "the other one"
    beside = Fault(fault.at, fault.failure, f"not measured, because {side} failed")
    at_this, at_other = (fault, beside) if broken.key == THIS else (beside, fault)
    other = GraphResult(component, fault=at_other)
    found = GraphComparison(component, None, other, orders, broken.key)
    return GraphResult(component, fault=at_this), other, found
