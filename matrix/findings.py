"""Findings: what tuning and onboarding have learned, each claim with its scope and its evidence.

A finding is one claim. People write it once; what speaks for or against it is added as evidence and
never deleted. How far it may be trusted is computed from that evidence alone:

0   nothing that counts    a guess, an emulator, a single session
1   seen                   an effect of at least 5 %
2   measured               interleaved with its baseline, the interval clear of the noise floor
3   repeated               level 2 on two models of one architecture
4   general                level 2 on three architectures
5   predictive             level 4, and fewer than 5 % of at least 60 predictions were wrong

A finding may also claim that its settings change nothing (`effect = "none"`). Evidence for it is a
change below 5 % (level 1), and an interleaved measurement whose whole interval is within 5 % on
either side (from level 2 on). A noisy measurement shows no such thing.

A finding below level 3 only orders the hypotheses of a tuning. From level 3 on it may leave one
out, as long as nothing within its scope contradicts it; at level 5 its predictions count for more
than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from matrix.errors import PlanError, Problem
from matrix.globs import matches
from matrix.hypotheses import AXES
from matrix.nearest import hint, quote
from matrix.reader import Entry, read_rows

DATA = Path(__file__).parent / "data" / "findings"

Kind = Literal["tuning", "family", "method"]
Status = Literal["draft", "confirmed", "refuted", "retired"]
EFFORTS = ("entry", "first entry", "exporter for a task", "exporter", "more than an exporter")
GOALS = ("L0", "L1", "L2", "L3")
"""Of an onboarding: what a model of the family took, and how far it came."""

LEAST_EFFECT = 5.0
"""Percent of the latency; a smaller effect is no evidence."""
PRUNES_FROM = 3
UNKNOWN = "unknown"
"""The architecture of a model for which none is recorded."""
PREDICTIONS, WRONG = 60, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observation. `gain`, `low`, `high` and `floor` are percent of the baseline's latency:
    the change (positive: faster), its interval, and the noise floor of that measurement."""

    supports: bool
    model: str
    architecture: str
    target: str = ""
    device: str = ""
    protocol: Literal["interleaved", "sequential", "single", "none"] = "none"
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float = 0.0
    emulated: bool = False
    predicted: bool = False
    """The finding said beforehand how this would end."""
    digest: str = ""
    """Of the record that it was read from."""
    source: str = ""
    at: str = ""

    def shows(self, effect: str) -> bool:
        """Whether there was such an effect, or none worth the name, on a real device."""
        if self.emulated or self.gain is None:
            return False
        return (abs(self.gain) < LEAST_EFFECT) is (effect == "none")

    def proves(self, effect: str) -> bool:
        """Whether that is beyond what the measurement's noise can make."""
        if not self.shows(effect) or self.protocol != "interleaved":
            return False
        if self.low is None or self.high is None:
            return False
        if effect == "none":
            return self.low > -LEAST_EFFECT and self.high < LEAST_EFFECT
        return min(abs(self.low), abs(self.high)) > self.floor and self.low * self.high > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Where a claim holds: globs; an empty list says nothing."""

    targets: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    not_for: tuple[str, ...] = ()
    """Models and architectures that it must not be carried over to."""

    def holds(self, *, target: str = "", device: str = "", architecture: str, model: str) -> bool:
        """Whether the claim speaks about this model on this device."""
        if matches(architecture, self.not_for) or matches(model, self.not_for):
            return False
        pairs = (
            (self.targets, target),
            (self.devices, device),
            (self.architectures, architecture),
            (self.models, model),
        )
        return all(not globs or matches(value, globs) for globs, value in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One claim and everything known about it."""

    id: str
    kind: Kind
    title: str
    observation: str
    status: Status
    confidence: Literal["low", "medium", "high"]
    falsified_by: str
    mechanism: str = ""
    mechanism_confirmed: bool = False
    effect: Literal["change", "none"] = "change"
    """What it claims of its settings: that they change the latency, or that they change nothing."""
    action: Literal["first", "last", "skip", "note"] = "note"
    settings: tuple[str, ...] = ()
    """Which hypotheses the action is about: globs over `AXIS=VALUE`."""
    scope: Reach = field(default_factory=Reach)
    evidence: tuple[Evidence, ...] = ()
    effort: str = ""
    goal: str = ""
    updated: str = ""
    file: str = ""

    @property
    def level(self) -> int:
        """How far the evidence carries."""
        good = [one for one in self.evidence if one.supports and one.shows(self.effect)]
        if not good:
            return 0
        models = {(one.architecture, one.model) for one in good if one.proves(self.effect)}
        if not models:
            return 1
        # Two models of unknown architecture may have nothing in common.
        known = Counter(architecture for architecture, _ in models if architecture != UNKNOWN)
        if len(known) >= 3:
            return 5 if self._predictive() else 4
        return 3 if max(known.values(), default=0) >= 2 else 2

    def _predictive(self) -> bool:
        told = [one for one in self.evidence if one.predicted and not one.emulated]
        wrong = sum(not one.supports for one in told)
        return len(told) >= PREDICTIONS and wrong < WRONG * len(told)

    @property
    def contradicted(self) -> tuple[Evidence, ...]:
        """What speaks against it, within its own scope, on a real device."""
        return tuple(
            one
            for one in self.evidence
            if not one.supports
            and not one.emulated
            and self.scope.holds(
                target=one.target, device=one.device, architecture=one.architecture, model=one.model
            )
        )

    @property
    def prunes(self) -> bool:
        """Whether it may leave hypotheses out of a tuning."""
        return (
            self.kind == "tuning"
            and self.action == "skip"
            and self.status not in {"refuted", "retired"}
            and self.level >= PRUNES_FROM
            and (self.level == 5 or not self.contradicted)
        )

    @property
    def devices(self) -> tuple[str, ...]:
        """The real devices that its evidence comes from."""
        return tuple(
            sorted({one.device for one in self.evidence if one.device and not one.emulated})
        )

    def with_evidence(self, more: Iterable[Evidence]) -> Finding:
        """The same claim with what was seen since."""
        return replace(self, evidence=(*self.evidence, *more))


def read_findings(paths: Iterable[Path]) -> dict[str, Finding]:
    """The findings of these files, by id. Raises `PlanError` with every fault of every file."""
    problems: list[Problem] = []
    found: dict[str, Finding] = {}
    for path, entry in read_rows(paths, "finding", "id", problems):
        finding = _finding(entry, path.name)
        if finding.id in found:
            entry.bad(f"id {quote(finding.id)} is taken by {found[finding.id].file}")
        found.setdefault(finding.id, finding)
    if problems:
        raise PlanError(problems, "the findings")
    return found


def shipped() -> list[Path]:
    """The files that come with modelmill."""
    return sorted(DATA.glob("*.toml"))


def _finding(entry: Entry, file: str) -> Finding:
    made = entry.record(
        Finding,
        settings=entry.globs("settings") or (),
        effort=entry.choice("effort", EFFORTS) or "",
        goal=entry.choice("goal", GOALS) or "",
        scope=_reach(entry.inner("scope")),
        evidence=tuple(map(read_evidence, entry.rows("evidence"))),
        file=file,
    )
    if made.action != "note" and not made.settings:
        entry.bad(f"action {made.action} needs settings", 'for instance settings = ["opset=21"]')
    if (made.effort or made.goal) and made.kind != "family":
        entry.bad(f"a finding of the kind {made.kind} has no effort and no goal", "leave them out")
    if made.effect == "none" and not made.settings:
        entry.bad("effect none needs settings", 'for instance settings = ["pass=gelu"]')
    if made.effect == "none" and made.action == "first":
        entry.bad("what changes nothing is not tried first", 'action = "last" or "skip"')
    for setting in made.settings:
        axis, equals, _ = setting.partition("=")
        if not equals or axis not in AXES:
            entry.bad(f"settings: {quote(setting)} is not AXIS=VALUE", hint(axis, AXES))
    if made.mechanism_confirmed and not made.mechanism:
        entry.bad("mechanism_confirmed is true, but mechanism is empty")
    entry.close()
    return made


def _reach(entry: Entry) -> Reach:
    names = ("targets", "devices", "architectures", "models", "not_for")
    made = Reach(**{name: entry.globs(name) or () for name in names})
    entry.close()
    return made


def read_evidence(entry: Entry) -> Evidence:
    """One observation; its faults are recorded with the entry."""
    made = entry.record(Evidence)
    if made.low is not None and made.high is not None and made.low > made.high:
        entry.bad(f"low {made.low:g} is above high {made.high:g}")
    entry.close()
    return made


def merged(
    findings: Mapping[str, Finding], seen: Iterable[tuple[str, Evidence]]
) -> dict[str, Finding]:
    """The findings with the observations that name them; other observations are ignored."""
    more: dict[str, list[Evidence]] = {}
    for name, evidence in seen:
        more.setdefault(name, []).append(evidence)
    return {name: one.with_evidence(more.get(name, ())) for name, one in findings.items()}
