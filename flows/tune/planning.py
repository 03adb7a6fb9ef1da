"""Plans a tuning from its baseline: the facts about the model, and the hypotheses in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from flows.packages.measured import Finder
from flows.tune.insight import Insight, graph_insight, graphs_of, with_session, with_trace
from flows.tune.knowledge import Knowledge
from flows.tune.making import Made
from flows.tune.ordering import Placed, Situation, ordered
from flows.tune.record import BASELINE, Step, Tuning
from flows.tune.tuning import Planned
from matrix.codec import to_json
from matrix.errors import UsageError
from matrix.globs import matches
from matrix.hypotheses import Hypothesis
from matrix.model import EXPORT, Profile
from workers.measure.result import Benchmark, GraphResult, Machine, this_machine
from workers.measure.trace.readings import Window
from workers.measure.trace.tracer import Plan, Tracer
from workers.runtimes.runtime import Runtime

WINDOW = Window(5, 30)
"""Runs of the trace of a baseline: enough to put operators in order."""


@dataclass(slots=True)
class Planning:
    """Plans one tuning."""

    tuning: Tuning
    space: Mapping[str, Hypothesis]
    knowledge: Knowledge
    profiles: Sequence[Profile]
    """What can be compiled for here."""
    finder: Finder
    tracer: Tracer
    quiet: Callable[[str], AbstractContextManager[None]]

    def plan(self, made: Made, found: Benchmark) -> Planned:
        """The steps, with the insight that they rest on."""
        insight = self._traced(self._graphs(made), made, found)
        insight = with_session(insight, found)
        cell = self.tuning.cell
        about = Situation(
            cell=cell,
            engine=self.tuning.engine,
            insight=insight,
            findings=self.knowledge.findings.values(),
            device=device_of(found.runtime, this_machine()),
            profiles=self.profiles,
            architecture=architecture_of(made),
        )
        steps = [_step(one) for one in ordered(self.space, about)]
        return Planned(steps, to_json(insight), about.family, self._notes(steps))

    def _graphs(self, made: Made) -> Insight:
        assert made.built is not None
        with self.finder.store.scratch.borrow("insight") as folder:
            return graph_insight(self.finder.runtimes.checker, graphs_of(made.built, folder))

    def _traced(self, insight: Insight, made: Made, found: Benchmark) -> Insight:
        """With the trace of the graph that takes the most time."""
        slowest = max(found.graphs, key=_latency).component
        graph = next(one for one in made.subject.graphs if one.component == slowest)
        plan = Plan("basic", WINDOW, self.tuning.protocol.threads)
        with (
            self.quiet(f"{self.tuning.model}: trace of the baseline"),
            self.finder.store.scratch.borrow("trace") as folder,
        ):
            return with_trace(insight, self.tracer.trace(made.subject, graph, plan, folder))

    def _notes(self, steps: Sequence[Step]) -> list[str]:
        """What could not be read of the knowledge base; what there is to try."""
        notes = [f"knowledge: {problem}" for problem in self.knowledge.problems]
        if not any(not step.skip for step in steps):
            notes.append("no hypothesis suits this model: there is nothing to try")
        return notes


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
