"""What a model needs of a machine, and what a machine says it has, in the same words.

`engine:NAME`, `os:NAME`, `arch:NAME`, `ep:NAME`, `remote-code`, `pickle`, any word of your own;
`memory:GB` is enough where the machine has as much or more.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from flows.cli.settings import Settings
from machine.memory import total
from matrix.model import Plan, PlannedModel
from state.records import StageCost
from workers.runtimes.kinds import KINDS, ORT

Words = frozenset[str]
_MEMORY = "memory"
_SAFETY = 1.25
_WORTH_SAYING = 2.0
"""GB; less than this every machine has."""


def needs_of(model: PlannedModel, engine: str, values: Mapping[str, Any], memory: float) -> Words:
    """The words that a machine must have to be given this model. `memory`: bytes at its peak."""
    words = {f"engine:{engine}", *model.model.needs, *values.get("needs", ())}
    if model.model.remote_code and values.get("allow_remote_code"):
        words.add("remote-code")
    if model.model.pickle and values.get("allow_pickle"):
        words.add("pickle")
    if (wanted := memory * _SAFETY / 1e9) >= _WORTH_SAYING:
        words.add(f"{_MEMORY}:{math.ceil(wanted)}")
    return frozenset(words)


def groups_of(
    plan: Plan, values: Mapping[str, Any], history: Iterable[StageCost]
) -> dict[Words, frozenset[str]]:
    """The models of a plan by what they need: few groups, however many models."""
    peak: dict[str, float] = {}
    for cost in history:
        peak[cost.model] = max(peak.get(cost.model, 0.0), float(cost.peak_memory))
    groups: dict[Words, set[str]] = {}
    for model in plan.models:
        needs = needs_of(model, plan.engine, values, peak.get(model.name, 0.0))
        groups.setdefault(needs, set()).add(model.name)
    return {needs: frozenset(names) for needs, names in groups.items()}


def serves(has: Collection[str], needs: Collection[str]) -> bool:
    """Whether a machine with these words may be given what needs those."""
    memory = max((_gigabytes(word) for word in has), default=0.0)
    return all(
        _gigabytes(word) <= memory if word.startswith(f"{_MEMORY}:") else word in has
        for word in needs
    )


def lacking(machines: Iterable[Words], needs: Collection[str]) -> list[str]:
    """What the machine that comes nearest does not have; no machine: everything."""
    lacks = [sorted(need for need in needs if not serves(has, {need})) for has in machines]
    return min(lacks, key=len, default=sorted(needs))


def _gigabytes(word: str) -> float:
    kind, _, number = word.partition(":")
    return float(number) if kind == _MEMORY and number.isdigit() else 0.0


def words_here(settings: Settings, engines: Iterable[str], more: Iterable[str] = ()) -> Words:
    """What this machine announces. Memory in powers of two, so that like machines are alike."""
    ceiling = settings.memory or total()
    words = {
        f"os:{platform.system().lower()}",
        f"arch:{platform.machine().lower()}",
        f"{_MEMORY}:{2 ** int(math.log2(max(ceiling / 1e9, 1.0)))}",
        *(f"engine:{name}" for name in engines),
        *(f"ep:{name}" for name in _runtimes(settings)),
        *more,
    }
    if settings.allow_remote_code:
        words.add("remote-code")
    if settings.allow_pickle:
        words.add("pickle")
    return frozenset(words)


def _runtimes(settings: Settings) -> list[str]:
    """The providers besides ONNX Runtime's CPU on which cells can be run here."""
    allowed = settings.runtimes
    return [
        kind.name
        for kind in KINDS
        if kind is not ORT
        and (kind.installed or kind.name in settings.engine_pythons)
        and (not allowed or kind.name in allowed)
    ]


def to_text(words: Words) -> str:
    """For an environment variable or a description."""
    return json.dumps(sorted(words))


def from_text(text: str | None) -> Words:
    """Back again; anything else is no words."""
    try:
        read = json.loads(text or "[]")
    except ValueError:
        return frozenset()
    return frozenset(map(str, read)) if isinstance(read, list) else frozenset()
