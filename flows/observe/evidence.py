"""Reading what was recorded as evidence of a package: the rungs of verification, and what compiling
gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from flows.output.quantity import show_duration, show_size
from matrix.codec import from_json
from matrix.verification import RUNGS
from state.damage import damaged
from state.records import Outcome
from workers.verify.ladder.levels import Proof, proof_of, took

Json = Mapping[str, Any]
EMULATED = "measured on an emulator: these times and sizes say nothing about the device"


def rungs_of(one: Outcome) -> list[Json]:
    """The rungs as they were recorded."""
    rungs, found = (one.evidence or {}).get("rungs", []), _listed(one.evidence, "rungs")
    if not isinstance(rungs, list) or len(found) < len(rungs):
        raise damaged(f"evidence of {one.cell}: rungs")
    return found


def judged_of(one: Outcome) -> Proof | None:
    """What a cell was judged on, and how well it agrees; None: it was not compared."""
    return proof_of(rungs_of(one))


def level_of(rungs: Iterable[Json]) -> str | None:
    """The highest rung that holds with all below it; None: nothing was verified here."""
    known = {str(rung.get("name")): rung for rung in rungs}
    level = None
    for name in RUNGS:
        rung = known.get(name, {})
        if rung.get("passed") is not True and not rung.get("waived"):
            break
        level = name
    return level


def weaker(before: Json | None, after: Json | None) -> Iterator[str]:
    """What verification proved before and no longer proves; nothing if one side has no evidence."""
    old, new = _by_name(before), _by_name(after)
    if not old or not new:
        return
    for name in RUNGS:
        if old.get(name, {}).get("passed") is True and new.get(name, {}).get("passed") is not True:
            yield f"verification: {name} passed -> {_finding(new.get(name))}"
    if _own_runtime(before) and not _own_runtime(after):
        yield "verification: ran on the target's own execution provider -> did not"


def _by_name(evidence: Json | None) -> dict[str, Json]:
    return {str(one.get("name")): one for one in _listed(evidence, "rungs")}


def _finding(rung: Json | None) -> str:
    if rung is None:
        return "not tried"
    if rung.get("waived"):
        return f"waived: {rung['waived']}"
    why = f": {rung['detail']}" if rung.get("detail") else ""
    return ("could not be run" if rung.get("passed") is None else "does not hold") + why


def _own_runtime(evidence: Json | None) -> Json:
    """The runtime of the target's own provider, if it ran there."""
    ran = (one for one in _listed(evidence, "runtimes") if one.get("own") and one.get("ran"))
    return next(ran, {})


class Where(StrEnum):
    """What stood for the device when a package was verified, the strongest evidence first."""

    OWN = "its own device"
    EMULATED = "its own provider, emulated"
    IN_PLACE = "ONNX Runtime CPU in place of its own provider"


@dataclass(frozen=True, slots=True)
class RunOn:
    """On what a package was verified, for people in `str`."""

    where: Where
    name: str = ""
    """Of the target's own runtime, if it ran there."""
    why: str = ""
    """Why it did not."""

    def __str__(self) -> str:
        return self.name or str(self.where)


def run_on(evidence: Json | None) -> RunOn | None:
    """What a build record, or the evidence of an outcome, says; None: nothing ran."""
    if own := _own_runtime(evidence):
        where = Where.EMULATED if own.get("emulated") else Where.OWN
        return RunOn(where, str(own.get("name") or where))
    tried = _listed(evidence, "runtimes")
    if not any(one.get("ran") for one in tried):
        return None
    own = next((one for one in tried if one.get("own")), {})
    return RunOn(Where.IN_PLACE, why=str(own.get("not_run") or own.get("why") or ""))


def partly_taken(evidence: Json | None) -> str:
    """How much of the graph the target's own provider has taken; empty: all, or it did not run."""
    own = _own_runtime(evidence)
    try:
        mine, every = own.get("taken") or (0, 0)
        return f"{own.get('name')} {took(own)}" if 0 < mine < every else ""
    except (TypeError, ValueError):  # damaged
        return ""


def _listed(evidence: Json | None, name: str) -> list[Json]:
    told = (evidence or {}).get(name)
    listed = told if isinstance(told, list | tuple) else ()
    return [one for one in listed if isinstance(one, Mapping)]


def notices_of(evidence: Json | None) -> list[str]:
    """What stages say of how they made a package, e.g. that they quantized a graph again."""
    found = []
    for stage in _listed(evidence, "stages"):
        facts = stage.get("facts")
        if isinstance(facts, Mapping) and (notice := facts.get("notice")):
            component = stage.get("component")
            found.append(f"{component}: {notice}" if component else str(notice))
    return found


@dataclass(frozen=True, slots=True)
class Side:
    """One model file; without seconds and bytes it could not be opened."""

    seconds: float | None = None
    memory: int | None = None

    def __str__(self) -> str:
        if self.seconds is None or self.memory is None:
            return "no time: it could not be opened"
        return f"{show_duration(self.seconds)} and {show_size(self.memory)}"


@dataclass(frozen=True, slots=True)
class ModelOpening:
    """A model file in both forms."""

    model: str = ""
    portable: Side = Side()
    compiled: Side = Side()


@dataclass(frozen=True, slots=True)
class Opening:
    """What opening took, and on which runtime it was measured."""

    on: str
    emulated: bool
    models: tuple[ModelOpening, ...]


@dataclass(frozen=True, slots=True)
class Sharing:
    """The size of one context for several graphs."""

    graphs: int
    together: int


def opening_of(record: Json | None) -> Opening | None:
    """What a build record, or the evidence of an outcome, says; None: nothing that can be read."""
    try:
        told = (record or {}).get("opening") or {}
        models = from_json(told, dict[str, ModelOpening], exact=False)
    except ValueError:
        return None
    own = _own_runtime(record)
    named = tuple(replace(one, model=name) for name, one in sorted(models.items()))
    return Opening(str(own.get("name", "")), bool(own.get("emulated")), named) if named else None


def opening_lines(opening: Opening | None) -> Iterator[str]:
    """For people."""
    for model in opening.models if opening else ():
        yield f"{model.model} opens in {model.compiled}; the portable model in {model.portable}"
    if opening and opening.on:
        yield f"  on {opening.on}"
    if opening and opening.emulated:
        yield f"  {EMULATED}"


def sharing_of(record: Json | None) -> Sharing | None:
    """The same of shared contexts."""
    try:
        found = from_json((record or {}).get("sharing"), Sharing, exact=False)
    except ValueError:
        return None
    return found if found.graphs > 1 else None
