"""What compiling gave: times to open a model, and the sizes of shared contexts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

EMULATED = "measured on an emulator: these times and sizes say nothing about the device"


@dataclass(frozen=True, slots=True)
class Side:
    """One model file; without seconds and bytes it could not be opened."""

    seconds: float | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class ModelOpening:
    """A model file in both forms."""

    model: str
    portable: Side
    compiled: Side


@dataclass(frozen=True, slots=True)
class Opening:
    """What was measured, and on which runtime."""

    on: str
    emulated: bool
    models: tuple[ModelOpening, ...]


@dataclass(frozen=True, slots=True)
class Sharing:
    """The size of one context for several graphs, and of a context for each of them."""

    graphs: int
    together: int
    apart: int | None = None
    """None: one of them could not be compiled alone."""


def sharing_of(record: Json | None) -> Sharing | None:
    """What a build record, or the evidence of an outcome, says; None: no context is shared."""
    told = (record or {}).get("sharing")
    if not isinstance(told, Mapping):
        return None
    graphs, together, apart = (told.get(name) for name in ("graphs", "together", "apart"))
    if not isinstance(graphs, int) or not isinstance(together, int) or graphs <= 1:
        return None
    return Sharing(graphs, together, apart if isinstance(apart, int) else None)


def opening_of(record: Json | None) -> Opening | None:
    """What a build record, or the evidence of an outcome, says; None: nothing was measured."""
    told = (record or {}).get("opening")
    if not isinstance(told, Mapping) or not told:
        return None
    runtimes = (record or {}).get("runtimes")
    listed = runtimes if isinstance(runtimes, list | tuple) else ()
    known = [one for one in listed if isinstance(one, Mapping)]
    own = next((one for one in known if one.get("own") and one.get("ran")), {})
    models = [
        ModelOpening(str(name), _side(both.get("portable")), _side(both.get("compiled")))
        for name, both in sorted(told.items())
        if isinstance(both, Mapping)
    ]
    return Opening(str(own.get("name", "")), bool(own.get("emulated")), tuple(models))


def _side(told: object) -> Side:
    if not isinstance(told, Mapping):
        return Side()
    seconds, memory = told.get("seconds"), told.get("memory")
    if not isinstance(seconds, int | float) or not isinstance(memory, int):
        return Side()
    return Side(float(seconds), memory)
