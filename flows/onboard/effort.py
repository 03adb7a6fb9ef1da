"""How much work a model is: what the engine says that it builds, before anything is built.

Necessary, never sufficient: only a build shows that the words of a table are true.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from flows.onboard.configs import config_of
from matrix.abilities import abilities_of
from matrix.coverage import Coverage, Verdict, cover
from matrix.findings import Finding
from matrix.globs import matches
from matrix.model import Model


class Effort(StrEnum):
    """The tiers, lowest first."""

    ENTRY = "entry"
    """A catalog entry is enough, and the family has been onboarded before."""
    FIRST_ENTRY = "first entry"
    """A catalog entry is enough; its family is new, so it owes a finding."""
    TASK = "exporter for a task"
    """The architecture is exported for other tasks."""
    EXPORTER = "exporter"
    """Nothing exports the architecture."""
    MORE = "more than an exporter"
    """The model or its task has no ONNX form here, or needs code of its repository."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What can be said of one model without a build."""

    coverage: Coverage
    effort: Effort
    why: str
    findings: tuple[str, ...] = ()
    """Of the family, to be read first."""
    doubt: str = ""
    """Why the task may be the wrong one."""

    @property
    def architecture(self) -> str:
        """The model type of Transformers; `unknown`: only a download would tell."""
        return self.coverage.architecture


def probe(engine: str, model: Model, known: Iterable[Finding]) -> Probe:
    """Look a model up; its family's findings are among the known ones."""
    config = config_of(model)
    found = cover(model, engine, config)
    family = tuple(
        one.id
        for one in known
        if one.kind == "family" and matches(found.architecture, one.scope.architectures)
    )
    effort = _effort(engine, found, family)
    names = (config or model.source.config).get("architectures")
    return Probe(found, effort, _why(found), family, _doubt(model.task, names))


def _effort(engine: str, found: Coverage, family: tuple[str, ...]) -> Effort:
    if found.verdict in {Verdict.IMPOSSIBLE, Verdict.CODE}:
        return Effort.MORE
    if found.verdict is Verdict.EXPORTER:
        abilities = abilities_of(engine)
        listed = abilities is not None and found.architecture in abilities.architectures
        return Effort.TASK if listed else Effort.EXPORTER
    return Effort.ENTRY if family else Effort.FIRST_ENTRY


def _why(found: Coverage) -> str:
    near = f"; the nearest that builds is {found.nearest}" if found.nearest else ""
    if found.why:
        return f"{found.verdict}: {found.why}{near}"
    return f"{found.verdict}: {found.architecture} is exported for {found.task}"


def _doubt(task: str, names: object) -> str:
    """A class that generates is listed under fill-mask by tables of names."""
    for name in names if isinstance(names, list | tuple) else ():
        if task == "fill-mask" and str(name).endswith("ForConditionalGeneration"):
            return f"{name} generates text: fill-mask may be the wrong task"
    return ""
