"""Plans a tuning from its baseline: which hypotheses are tried, in which order, and why.

The order does not depend on earlier builds: the same space, model, insight and knowledge give the
same order. Certain facts exclude hypotheses first: the engine has no such option, the target does
not accept it, the baseline already has it, or the graph has no place for it. Then the knowledge
base applies: a finding excludes a hypothesis only if it may prune; otherwise it moves the
hypothesis to the front or the end. For the rest the insight decides: the number of places for a
pass, and the time that the trace shows there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import log

from flows.tune.insight import Insight
from flows.tune.knowledge import Knowledge
from flows.tune.place import Made, Planned
from flows.tune.record import BASELINE, Step
from matrix.codec import to_json
from matrix.errors import UsageError
from matrix.findings import Finding
from matrix.globs import matches
from matrix.hypotheses import Guards, Hypothesis
from matrix.model import EXPORT, Cell, Profile
from matrix.overlay import Unfit, overlay
from matrix.vocabulary import CANDIDATES, CONCERNS
from workers.measure.result import Benchmark, Machine
from workers.measure.subject import Graph
from workers.runtimes.runtime import Runtime


class Place(IntEnum):
    """Where a hypothesis stands."""

    FIRST = 0
    """A finding recommends it."""
    NORMAL = 1
    LAST = 2
    """A finding advises against it, and must not leave it out."""
    SKIPPED = 3


@dataclass(frozen=True, slots=True)
class Placed:
    """A hypothesis with its place."""

    hypothesis: Hypothesis
    """As the engine takes it."""
    place: Place
    why: str
    """In words."""
    finding: str = ""
    """The id of the finding that decided."""
    score: float = 0.0
    cell: Cell | None = None
    """What it would build; None: it is skipped."""

    @property
    def skipped(self) -> bool:
        """Whether it is not tried."""
        return self.place is Place.SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the order depends on."""

    cell: Cell
    """The baseline as it is planned."""
    engine: str
    insight: Insight
    findings: Iterable[Finding] = ()
    device: str = ""
    """As evidence names it."""
    profiles: Sequence[Profile] = ()
    """What can be compiled for here."""
    architecture: str = ""
    """Empty: the catalog's model type."""

    @property
    def family(self) -> str:
        """The architecture, as findings name it."""
        return self.architecture or self.cell.model.model_type


_Reasons = list[tuple[float, str]]
"""Why a hypothesis scores as it does: points with their reason."""


def ordered(space: Mapping[str, Hypothesis], about: Situation) -> list[Placed]:
    """All hypotheses about the target of a cell: those that are tried in order, then the others."""
    placed = [
        _placed(one.for_engine(about.engine), about)
        for one in space.values()
        if one.applies(about.cell.target)
    ]
    rank = {id(one): number for number, one in enumerate(placed)}
    return sorted(placed, key=lambda one: (one.place, -one.score, rank[id(one)]))


def _placed(one: Hypothesis, about: Situation) -> Placed:
    try:
        fitting = (known for known in about.profiles if matches(known.label, [one.compiled]))
        cell = overlay(about.cell, one, next(fitting, None) if one.compiled else None)
    except Unfit as error:
        return Placed(one, Place.SKIPPED, error.message)
    if _builds_alike(cell, about.cell) and not one.runtime:
        return Placed(one, Place.SKIPPED, "the baseline is already built that way")
    if why := next(_unmet(one, about), ""):
        return Placed(one, Place.SKIPPED, why)
    known = [finding for finding in about.findings if _speaks_of(finding, one, about)]
    for finding in known:
        if finding.prunes:
            why = f"{finding.id} (level {finding.level}): {finding.title}"
            return Placed(one, Place.SKIPPED, why, finding.id)
    found = _scored(one, about)
    if not about.insight.available and one.guards != Guards():
        found.append((0.0, f"it is not known whether the model suits it: {about.insight.reason}"))
    return _by_findings(one, cell, known, found)


def _builds_alike(one: Cell, other: Cell) -> bool:
    policies = [replace(cell.policy, asked=None, notices=()) for cell in (one, other)]
    return policies[0] == policies[1] and one.profile == other.profile


def _by_findings(one: Hypothesis, cell: Cell, known: Sequence[Finding], found: _Reasons) -> Placed:
    """The place among those that are tried."""
    score, texts = sum(points for points, _ in found), [text for _, text in found]
    for action, place in (("last", Place.LAST), ("skip", Place.LAST), ("first", Place.FIRST)):
        finding = next((item for item in known if item.action == action), None)
        if finding is None:
            continue
        word = "advises against it" if place is Place.LAST else "recommends it"
        told = f"{finding.id} (level {finding.level}, {finding.status}) {word}: {finding.title}"
        why = "; ".join([told, *texts])
        return Placed(one, place, why, finding.id, score, cell)
    why = "; ".join(texts) or "there is no evidence for or against it"
    return Placed(one, Place.NORMAL, why, "", score, cell)


def _speaks_of(finding: Finding, one: Hypothesis, about: Situation) -> bool:
    """Whether a finding is about this hypothesis, on this model and device."""
    if finding.kind != "tuning" or finding.status in {"refuted", "retired"}:
        return False
    named = any(matches(text, finding.settings) for text in one.settings)
    return named and finding.scope.holds(
        target=about.cell.target.label,
        device=about.device,
        architecture=about.family,
        model=about.cell.model.id,
    )


def _unmet(one: Hypothesis, about: Situation) -> Iterator[str]:
    """The guards that keep a hypothesis from a model, as far as the graph is known."""
    guards, insight = one.guards, about.insight
    if guards.architectures and not matches(about.family, guards.architectures):
        yield f"it is for {', '.join(guards.architectures)}, not for {about.family}"
    if guards.not_for and matches(about.family, guards.not_for):
        yield f"it is not for {about.family}"
    if not insight.available:
        return
    for name in guards.needs:
        if not _has(insight, name):
            yield f"the graph has no {name}"
    for name in guards.not_with:
        if count := _has(insight, name):
            yield f"the graph has {name} ({count})"
    if guards.candidates and not any(map(insight.candidate, guards.candidates)):
        told = " or ".join(CANDIDATES[name] for name in guards.candidates)
        yield f"the graph has no place for it: {told}"
    for name, (low, high) in guards.share.items():
        share = insight.share(name) or 0.0
        if not low <= share <= high:
            yield f"{share:.0%} of the nodes are {name}, and {low:.0%} to {high:.0%} are asked for"


def _has(insight: Insight, operator: str) -> int:
    """In the standard domain or in ONNX Runtime's."""
    return insight.operators.get(operator, 0) + insight.operators.get(
        f"com.microsoft:{operator}", 0
    )


def _scored(one: Hypothesis, about: Situation) -> _Reasons:
    """The more places and time there are, the earlier; the numbers order and prove nothing."""
    found: _Reasons = []
    insight = about.insight
    named = {text.partition("=")[2].removeprefix("no_") for text in one.settings}
    for name in sorted(named & CANDIDATES.keys()):
        if candidate := insight.candidate(name):
            text = f"{candidate.count} places for {name}, e.g. {candidate.evidence[0]}"
            found.append((1 + log(candidate.count), text))
    if "gelu" in named and insight.candidate("gelu"):
        found.append((2, "GELU is spelt out"))
    _score_shares(one, about, found)
    types = {kind for name in named for kind in CONCERNS.get(name, ())}
    spent = [row for row in insight.top if row.type in types]
    if spent:
        percent = sum(row.percent for row in spent)
        names = ", ".join(row.type for row in spent)
        found.append((percent / 10, f"{names} take {percent:.0f} % of the time"))
    if insight.taken is not None and insight.taken < 1 and one.axis == "pass":
        left = 1 - insight.taken
        found.append((-2, f"{about.cell.target.provider} leaves {left:.0%} of the nodes to others"))
    return found


def _score_shares(one: Hypothesis, about: Situation, found: _Reasons) -> None:
    insight, target = about.insight, about.cell.target
    convolutions = insight.share("Conv")
    if convolutions is None:
        return
    reshapes = insight.count("Reshape") or 0
    if target.device == "npu" and one.opset == 21 and reshapes > 30 and convolutions < 0.1:
        found.append((10, f"{reshapes} Reshape and few convolutions, on an NPU"))
    about_conv = any("conv_" in text for text in one.settings) or "Conv" in one.guards.needs
    if about_conv and convolutions > 0.4 and target.ep != "qnn":
        found.append((2, f"{convolutions:.0%} of the nodes are Conv"))


def plan_of(about: Situation, space: Mapping[str, Hypothesis], knowledge: Knowledge) -> Planned:
    """The steps in order, with the insight that they rest on."""
    steps = [
        Step(
            key=one.hypothesis.id,
            title=one.hypothesis.title,
            hypotheses=(one.hypothesis.id,),
            settings=one.hypothesis.settings,
            why="" if one.skipped else one.why,
            skip=one.why if one.skipped else "",
            finding=one.finding,
            changes=to_json(one.hypothesis),
        )
        for one in ordered(space, about)
    ]
    notes = [f"knowledge: {problem}" for problem in knowledge.problems]
    if not any(not step.skip for step in steps):
        notes.append("no hypothesis suits this model: there is nothing to try")
    return Planned(steps, to_json(about.insight), about.family, notes)


def slowest_graph(made: Made, found: Benchmark) -> Graph:
    """The graph of a build that takes the most time."""
    latency = {one.component: one.latency.p50 if one.latency else 0.0 for one in found.graphs}
    slowest = max(latency, key=latency.__getitem__)
    return next(one for one in made.subject.graphs if one.component == slowest)


def architecture_of(made: Made) -> str:
    """What the export read in the model's own configuration; empty: it does not tell."""
    stages = made.built.manifest.get("stages", ()) if made.built else ()
    told = (one["facts"].get("model_type") for one in stages if one["stage"] == EXPORT)
    return next((one for one in told if isinstance(one, str)), "")


def device_of(runtime: Runtime, machine: Machine) -> str:
    """The device of a machine as evidence names it."""
    return runtime.detail or f"{machine.processor} {runtime.device.upper()}"


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
