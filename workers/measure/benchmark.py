"""Measures one subject: each graph in separate sessions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from workers.measure.result import Benchmark, GraphResult, Latency, Protocol, this_machine
from workers.measure.running import Arm, Broken, Driver, Outcome, Turn
from workers.measure.subject import Graph, Subject

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
