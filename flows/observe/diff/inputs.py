"""What differs between the inputs of two builds of a cell: source, tools, policy, parameters.

Every stage key is recorded with its parts. What a stage gets from an earlier one is a consequence,
not a cause, so only inputs from outside are listed, each once with the stages that use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from workers.build.keys import differences, shown

Json = Mapping[str, Any]


class Origin(StrEnum):
    """Where a difference comes from."""

    SOURCE = "source"
    ENGINE = "engine"
    TOOL = "tool"
    POLICY = "policy"
    PARAMETER = "parameter"
    STAGES = "stages"


@dataclass(frozen=True, slots=True)
class InputChange:
    """One input that differs, and the stages that use it."""

    origin: Origin
    name: str
    before: str
    after: str
    stages: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.name if self.origin.value == self.name else f"{self.origin} {self.name}"
        return f"{name}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Made:
    """The inputs of a cell: the parts of its stage keys, its policy, its source as requested."""

    stages: Mapping[str, Json]
    """By stage and component; empty if that sweep built nothing."""
    policy: Json
    source: Json

    @property
    def built(self) -> bool:
        """Whether the state knows the keys."""
        return bool(self.stages)


def input_changes(before: Made, after: Made) -> list[InputChange]:
    """Every input from outside that differs, once."""
    found: dict[tuple[Origin, str, str, str], list[str]] = {}
    for origin, name, old, new in _around(before, after):
        found.setdefault((origin, name, old, new), [])
    for stage in [name for name in after.stages if name in before.stages]:
        for difference in _within(before.stages[stage], after.stages[stage]):
            found.setdefault(difference, []).append(stage)
    order = list(Origin)
    changes = [InputChange(*what, stages=tuple(stages)) for what, stages in found.items()]
    return sorted(changes, key=lambda change: (order.index(change.origin), change.name))


def _around(before: Made, after: Made) -> Iterator[tuple[Origin, str, str, str]]:
    for name, old, new in differences(before.source, after.source):
        yield Origin.SOURCE, name, old, new
    if before.policy and after.policy:
        for name, old, new in differences(before.policy, after.policy):
            if name not in {"notices", "asked", "default"}:
                yield Origin.POLICY, name, old, new
    if before.built and after.built and list(before.stages) != list(after.stages):
        old, new = " > ".join(before.stages), " > ".join(after.stages)
        if set(before.stages) != set(after.stages):
            yield Origin.STAGES, "stages", old, new


def _within(old: Json, new: Json) -> Iterator[tuple[Origin, str, str, str]]:
    if old.get("engine") != new.get("engine"):
        yield Origin.ENGINE, "engine", shown(old.get("engine")), shown(new.get("engine"))
    for name, was, now in differences(old.get("tools", {}), new.get("tools", {})):
        stage = name.removeprefix("engine.")
        if stage == name:
            yield Origin.TOOL, name, was, now
        else:
            yield Origin.ENGINE, f"code for {stage}", was, now
    for name, was, now in differences(old.get("inputs", {}), new.get("inputs", {})):
        if name == "source":
            yield Origin.SOURCE, "content", was, now
    for name, was, now in differences(old.get("params", {}), new.get("params", {})):
        if name == "commit":  # the commit that the requested revision resolved to
            yield Origin.SOURCE, name, was, now
        elif name != "source":  # the same digest as among the inputs
            yield Origin.PARAMETER, name, was, now
