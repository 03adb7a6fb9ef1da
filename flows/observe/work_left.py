"""What a sweep was foretold to take, kept with its plan, and what of that is still to come.

Whoever follows a sweep, in this process or on another machine, reads the same figures from its
events: those of `flows.observe.estimates`, from before it began. Time is corrected by how this run
fares; what turns out to be reused makes the rest shorter than was foretold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from flows.cli.quantity import show_duration, show_size
from flows.observe.estimates import Estimates, Range
from flows.sweep.exports import is_export
from matrix.codec import from_json, to_json

OUTLOOK = "outlook"
_PRIOR = 0.1
"""How much of the whole must be through before its pace counts as much as the past."""

_LATE = 0.1
"""What is left of a cell, as a share of what was foretold, however long it takes already."""


_RECORDED = tuple(
    one.name
    for one in fields(Estimates)
    if one.name not in {"models", "cells", "peaks", "sizes"}  # the first two in another form
)


def to_record(known: Estimates) -> dict[str, Any]:
    """As it is kept: what a model takes, and how its seconds fall to its cells."""
    cells: dict[str, dict[str, float]] = {name: {} for name in known.models}
    for cell, seconds in known.cells.items():
        name, _at, right = cell.rpartition("@")
        if name in cells:
            cells[name][right] = seconds
    models = {name: {**to_json(cost), "cells": cells[name]} for name, cost in known.models.items()}
    told = {name: to_json(getattr(known, name)) for name in _RECORDED}
    return {**told, "models": _rounded(models)}


def from_record(record: Mapping[str, Any]) -> Estimates:
    """And read again."""
    models: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    for name, row in record["models"].items():
        models[name] = dict(row)
        of_model = models[name].pop("cells")
        cells |= {f"{name}@{right}": seconds for right, seconds in of_model.items()}
    return from_json({**record, "models": models, "cells": cells}, Estimates, exact=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def spelled(what: Range, show: Callable[[float], str]) -> str:
    """A figure with its range."""
    return f"{show(what.likely)} ({show(what.low)} to {show(what.high)})"


class Outlook:
    """The work that is left, cell by cell."""

    def __init__(self, known: Estimates | None = None) -> None:
        self.known = known or Estimates({}, {})
        self._due: dict[str, float] = {}
        """Foretold seconds of the cells that are not through, by model."""
        self._dark: Counter[str] = Counter()
        """Cells that are not through and that nothing is known of, by model."""
        self._exported: dict[str, float] = {}
        """Seconds that went into exports, by model, until its first cell, with which they were
        foretold, is through."""
        self._through = (0, 0.0, 0.0)
        """Cells that this run got through: how many, foretold seconds, real ones."""
        self._whole = self.known.wall(1)

    def add(self, cell: str, sign: int = 1) -> None:
        """A cell (no export) is to be built; with -1, it is not any more."""
        name = cell.rpartition("@")[0]
        seconds = self.known.cells.get(cell)
        if seconds is None:
            self._dark[name] += sign
            if not self._dark[name]:
                del self._dark[name]
        left = self._due.get(name, 0.0) + sign * (seconds or 0.0)
        if left > 1e-9:
            self._due[name] = left
        else:
            self._due.pop(name, None)

    def took(self, cell: str, seconds: float) -> None:
        """A cell or export is through; so long a slot was at it."""
        count, foretold, real = self._through
        name = cell.rpartition("@")[0]
        if is_export(cell):
            self._exported[name] = self._exported.get(name, 0.0) + seconds
            return
        real += seconds + self._exported.pop(name, 0.0)
        self._through = (count + 1, foretold + self.known.cells.get(cell, 0.0), real)

    def left(self, slots: int, at_hand: Mapping[str, float]) -> Range | None:
        """Until the last slot is through; `at_hand`: cells with the seconds they have taken so
        far. None: no idea yet."""
        names = self._due.keys() | self._dark.keys()
        if not names:
            return Range()
        count, _foretold, real = self._through
        if self._dark and count < 2 * slots:
            return None
        usual = real / count if count else 0.0
        pace = self._pace()
        due = {one: self._due.get(one, 0.0) * pace + self._dark[one] * usual for one in names}
        spent = [*self._exported.items(), *self._at_hand(at_hand, pace, usual)]
        for name, seconds in spent:
            if name in due:
                due[name] -= min(seconds, (1 - _LATE) * due[name])
        # A model stays with its slot: however many are free, the longest one takes its time.
        return self._ranged(max(sum(due.values()) / max(slots, 1), *due.values()))

    def _at_hand(
        self, seconds: Mapping[str, float], pace: float, usual: float
    ) -> Iterator[tuple[str, float]]:
        """What the cells at hand have taken, as far as it was foretold for them."""
        for cell, taken in seconds.items():
            name = cell.rpartition("@")[0]
            foretold = (1 - _LATE) * self.known.cells.get(cell, usual) * pace
            yield name, taken if is_export(cell) else min(taken, foretold)

    def _pace(self) -> float:
        _count, foretold, real = self._through
        prior = _PRIOR * self._whole.likely
        return (real + prior) / (foretold + prior) if foretold + prior > 0 else 1.0

    def _ranged(self, seconds: float) -> Range:
        whole = self._whole
        if not whole.likely:
            return Range.around(seconds)
        return Range(
            seconds, seconds * whole.low / whole.likely, seconds * whole.high / whole.likely
        )

    def needs(self, slots: int) -> tuple[Range, Range] | None:
        """Disk and memory of the models that are not through; None: nothing is known of them."""
        costs = {name: cost for name, cost in self.known.models.items() if name in self._due}
        if not costs:
            return None
        rest = Estimates(costs, {})
        return rest.disk(), rest.memory(slots)

    def lines(self, slots: int, at_hand: Mapping[str, float]) -> Iterator[str]:
        """For people: the time that is left; then disk and memory."""
        left, needs = self.left(slots, at_hand), self.needs(slots)
        if self.known.if_changed:
            # What is unchanged costs next to nothing, and nobody knows yet how much that is.
            if left is not None and left.likely:
                yield f"at most {show_duration(left.high)} left, if everything has changed"
            return
        if left is not None and left.likely:
            yield f"about {spelled(left, show_duration)} left"
        if needs is not None:
            disk, memory = needs
            yield f"disk {spelled(disk, show_size)}, memory {spelled(memory, show_size)}"
