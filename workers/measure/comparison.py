"""Compares two subjects: their graphs take turns, with the other one twice."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from matrix.errors import UsageError
from workers.measure.benchmark import graph_result, result_of
from workers.measure.result import Benchmark, Fault, GraphResult, Protocol
from workers.measure.running import Arm, Broken, Driver, Outcome, Turn
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


@dataclass(frozen=True, slots=True)
class _Compared:
    this: GraphResult
    other: GraphResult
    comparison: GraphComparison


def compare(
    driver: Driver, this: Subject, other: Subject, protocol: Protocol, seed: int
) -> Comparison:
    """Measure both in turns. Raises `UsageError` if their graphs are not the same."""
    pairs = _pairs(this, other)
    began = time.time()
    found = [
        _compared(driver, (this, one), (other, two), protocol, seed + number)
        for number, (one, two) in enumerate(pairs)
    ]
    warnings = driver.load.warnings()
    return Comparison(
        this=result_of(this, protocol, began, tuple(one.this for one in found), warnings),
        other=result_of(other, protocol, began, tuple(one.other for one in found), warnings),
        graphs=tuple(one.comparison for one in found),
        seed=seed,
    )


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
    driver: Driver,
    this: tuple[Subject, Graph],
    other: tuple[Subject, Graph],
    protocol: Protocol,
    seed: int,
) -> _Compared:
    component = this[1].component
    arms = [
        Arm(key, graph, subject.runtime)
        for key, (subject, graph) in ((THIS, this), (OTHER, other), (NULL, other))
    ]
    chance = random.Random(seed)  # noqa: S311 - an order, no secret
    sessions: list[dict[str, Outcome]] = []
    orders: list[str] = []
    try:
        for number in range(1, protocol.sessions + 1):
            chance.shuffle(arms)
            turns = list(_turns([arm.key for arm in arms], protocol, chance))
            orders.append("".join(turn.key[0] for turn in turns if turn.iterations))
            label = f"session {number} of {protocol.sessions}"
            sessions.append(driver.session(arms, turns, label))
    except Broken as broken:
        return _broken(component, broken, tuple(orders))
    results = {
        key: graph_result(component, [one[key] for one in sessions]) for key in (THIS, OTHER, NULL)
    }
    judgement = judge([_rounds(one) for one in sessions], seed)
    compared = GraphComparison(component, judgement, results[NULL], tuple(orders))
    return _Compared(results[THIS], results[OTHER], compared)


def _turns(keys: Sequence[str], protocol: Protocol, chance: random.Random) -> Iterator[Turn]:
    """Warm-up, then rounds in which every key has one turn."""
    for key in keys:
        yield Turn(key, 0, protocol.warmup)
    rounds = min(ROUNDS, protocol.iterations)
    for number in range(rounds):
        share = protocol.iterations // rounds + (number < protocol.iterations % rounds)
        for key in chance.sample(keys, len(keys)):
            yield Turn(key, share, 1, SETTLE)


def _rounds(session: dict[str, Outcome]) -> list[Round]:
    blocks = (session[key].blocks for key in (THIS, OTHER, NULL))
    # A clock that stands still would have no logarithm.
    return [
        Round(*(max(median(block), 1.0) for block in turns)) for turns in zip(*blocks, strict=True)
    ]


def _broken(component: str, broken: Broken, orders: tuple[str, ...]) -> _Compared:
    fault = broken.fault
    side = "the subject" if broken.key == THIS else "the other one"
    beside = Fault(fault.at, fault.failure, f"not measured, because {side} failed")
    at_this, at_other = (fault, beside) if broken.key == THIS else (beside, fault)
    null = GraphResult(component, fault=at_other)
    return _Compared(
        GraphResult(component, fault=at_this),
        GraphResult(component, fault=at_other),
        GraphComparison(component, None, null, orders),
    )
