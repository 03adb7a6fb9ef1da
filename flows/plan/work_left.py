"""How much work a sweep has left: its estimates, recorded with its plan, less what is done.

All who follow a sweep, in this process or on another machine, read the same estimates from its
events. The pace of the run corrects them: cells that are reused make the rest shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flows.output.quantity import show_duration, show_size
from flows.plan.estimates import Estimates
from matrix.codec import from_json, to_json
from matrix.model import is_export

ESTIMATE = "estimate"
_PRIOR = 0.1
"""The share of the whole that must be done before its pace counts as much as the past."""
_LATE = 0.1
"""The least that is left of a cell, as a share of its estimate, however long it has taken."""


def to_record(known: Estimates) -> dict[str, Any]:
    """The estimates as their sweep records them; stages are estimated where they run."""
    told: dict[str, Any] = _rounded(to_json(replace(known, peaks={}, sizes={})))
    return told


def from_record(record: Mapping[str, Any]) -> Estimates:
    return from_json(_figures(record), Estimates, exact=False)


def _figures(value: Any) -> Any:
    """Sweeps of older versions recorded a range with every figure."""
    if not isinstance(value, Mapping):
        return value
    return value.get("likely", {name: _figures(part) for name, part in value.items()})


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return round(value, 3) if isinstance(value, float) else value


class WorkLeft:
    """The work of the cells that are not done."""

    def __init__(self, known: Estimates | None = None) -> None:
        self.known = known or Estimates({}, {})
        self._due: dict[str, float] = {}
        """Estimated seconds of the cells that are not done, by model."""
        self._unknown: Counter[str] = Counter()
        """How many cells without an estimate are not done, by model."""
        self._exported: dict[str, float] = {}
        """Seconds spent on exports, by model. They are part of the estimate of its first cell and
        count until that is done."""
        self._done = (0, 0.0, 0.0)
        """Cells that this run has done: how many, estimated seconds, real seconds."""
        self._whole = self.known.wall(1)

    def add(self, cell: str, sign: int = 1) -> None:
        """Add a cell (not an export) to the work; -1 takes it away."""
        name = cell.rpartition("@")[0]
        seconds = self.known.cells.get(cell)
        if seconds is None:
            self._unknown[name] += sign
            if not self._unknown[name]:
                del self._unknown[name]
        left = self._due.get(name, 0.0) + sign * (seconds or 0.0)
        if left > 1e-9:
            self._due[name] = left
        else:
            self._due.pop(name, None)

    def took(self, cell: str, seconds: float) -> None:
        """A slot spent this long on a cell or export that is now done."""
        count, estimated, real = self._done
        name = cell.rpartition("@")[0]
        if is_export(cell):
            self._exported[name] = self._exported.get(name, 0.0) + seconds
            return
        real += seconds + self._exported.pop(name, 0.0)
        self._done = (count + 1, estimated + self.known.cells.get(cell, 0.0), real)

    def left(self, slots: int, at_hand: Mapping[str, float]) -> float | None:
        """The time until the last slot is done; `at_hand`: what the cells in work have taken so
        far. None: too little is known."""
        names = self._due.keys() | self._unknown.keys()
        if not names:
            return 0.0
        count, _estimated, real = self._done
        if self._unknown and count < 2 * slots:
            return None
        usual = real / count if count else 0.0
        pace = self._pace()
        due = {one: self._due.get(one, 0.0) * pace + self._unknown[one] * usual for one in names}
        spent = [*self._exported.items(), *self._at_hand(at_hand, pace, usual)]
        for name, seconds in spent:
            if name in due:
                due[name] -= min(seconds, (1 - _LATE) * due[name])
        # A model stays with its slot: however many are free, the longest one takes its time.
        return max(sum(due.values()) / max(slots, 1), *due.values())

    def _at_hand(
        self, seconds: Mapping[str, float], pace: float, usual: float
    ) -> Iterator[tuple[str, float]]:
        """What the cells in work have taken, up to their estimates."""
        for cell, taken in seconds.items():
            name = cell.rpartition("@")[0]
            estimated = (1 - _LATE) * self.known.cells.get(cell, usual) * pace
            yield name, taken if is_export(cell) else min(taken, estimated)

    def _pace(self) -> float:
        _count, estimated, real = self._done
        prior = _PRIOR * self._whole
        return (real + prior) / (estimated + prior) if estimated + prior > 0 else 1.0

    def needs(self, slots: int) -> tuple[float, float] | None:
        """Disk and memory of the models that are not done; None: nothing is known of them."""
        costs = {name: cost for name, cost in self.known.models.items() if name in self._due}
        if not costs:
            return None
        rest = Estimates(costs, {})
        return rest.disk(), rest.memory(slots)

    def lines(self, slots: int, at_hand: Mapping[str, float]) -> Iterator[str]:
        """The time that is left, then disk and memory."""
        left, needs = self.left(slots, at_hand), self.needs(slots)
        if self.known.if_changed:
            # What is unchanged costs next to nothing, and nobody knows yet how much that is.
            if left:
                yield f"about {show_duration(left)} left, if everything has changed"
            return
        if left:
            yield f"about {show_duration(left)} left"
        if needs is not None:
            disk, memory = needs
            yield f"disk about {show_size(disk)}, memory about {show_size(memory)}"
