"""Plans a tuning from its baseline: the facts about the model, and the hypotheses in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flows.tune.knowledge import Knowledge
from flows.tune.ordering import Placed, Situation, ordered
from flows.tune.place import Made, Planned
from flows.tune.record import BASELINE, Step
from matrix.codec import to_json
from matrix.errors import UsageError
from matrix.globs import matches
from matrix.hypotheses import Hypothesis
from matrix.model import EXPORT
from workers.measure.result import Benchmark, GraphResult, Machine
from workers.measure.subject import Graph
from workers.runtimes.runtime import Runtime


def plan_of(about: Situation, space: Mapping[str, Hypothesis], knowledge: Knowledge) -> Planned:
    """The steps in order, with the insight that they rest on."""
    steps = [_step(one) for one in ordered(space, about)]
    notes = [f"knowledge: {problem}" for problem in knowledge.problems]
    if not any(not step.skip for step in steps):
        notes.append("no hypothesis suits this model: there is nothing to try")
    return Planned(steps, to_json(about.insight), about.family, notes)


def slowest_graph(made: Made, found: Benchmark) -> Graph:
    """The graph of a build that takes the most time."""
    slowest = max(found.graphs, key=_latency).component
    return next(one for one in made.subject.graphs if one.component == slowest)


def architecture_of(made: Made) -> str:
    """What the export read in the model's own configuration; empty: it does not tell."""
    stages = made.built.manifest.get("stages", ()) if made.built else ()
    told = (one["facts"].get("model_type") for one in stages if one["stage"] == EXPORT)
    return next((one for one in told if isinstance(one, str)), "")


def device_of(runtime: Runtime, machine: Machine) -> str:
    """The device of a machine as evidence names it."""
    return runtime.detail or f"{machine.processor} {runtime.device.upper()}"


def _latency(graph: GraphResult) -> float:
    return graph.latency.p50 if graph.latency else 0.0


def _step(one: Placed) -> Step:
    return Step(
        key=one.hypothesis.id,
        title=one.hypothesis.title,
        hypotheses=(one.hypothesis.id,),
        settings=one.hypothesis.settings,
        why="" if one.skipped else one.why,
        skip=one.why if one.skipped else "",
        finding=one.finding,
        changes=to_json(one.hypothesis),
    )


def check_space(space: Mapping[str, Hypothesis], targets: Sequence[str]) -> None:
    """Raise `UsageError` unless something can be tried of each target."""
    if BASELINE in space:
        raise UsageError(
            f"no hypothesis may be called {BASELINE}", hint="that is the build as it is"
        )
    for label in targets:
        if not any(matches(label, one.targets) for one in space.values()):
            text = f"no hypothesis is about the target {label}"
            raise UsageError(text, hint="add some with --space FILE")
