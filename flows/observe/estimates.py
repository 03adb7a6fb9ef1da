"""What a sweep will take: time, disk and memory, each with a range, estimated from earlier sweeps.

A model with a history costs what its distinct stage runs cost last. A model without one is taken to
be like those of its task and type, else of its task, else like all; among these, like the nearest
in size where sizes are known. The plan, the progress line and the scheduler use the same numbers.

Estimates assume that no stage is reused.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from matrix.model import Cell, Model, Plan, PlannedModel, SourceKind
from state.records import StageRun

if TYPE_CHECKING:
    from state.reading import StateReader

SPREAD = 1.5
"""On the same machine, a stage takes up to this factor more or less than the last time."""
COMMON = 1.25
"""The factor by which a whole sweep may be off: the machine may be busier than it was."""
NEAREST = 8
"""How many models of similar size an estimate of a new model is made from."""


@dataclass(frozen=True, slots=True)
class Range:
    """A figure and how far it may be off."""

    likely: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @classmethod
    def around(cls, value: float, spread: float = SPREAD) -> Range:
        """A figure that may be off by a factor either way."""
        return cls(value, value / spread, value * spread)

    @classmethod
    def among(cls, values: Sequence[float]) -> Range:
        """From the figures of others: their median and their middle half."""
        if len(values) < 2:
            return cls.around(values[0], 2 * SPREAD)
        low, middle, high = quantiles(values, n=4, method="inclusive")
        return cls(middle, min(low, middle / SPREAD), max(high, middle * SPREAD))


def total(parts: Iterable[Range]) -> Range:
    """A sum. Deviations partly cancel out, so they add up as squares."""
    listed = list(parts)
    likely = sum(one.likely for one in listed)
    below = math.hypot(*(one.likely - one.low for one in listed))
    above = math.hypot(*(one.high - one.likely for one in listed))
    return Range(likely, max(0.0, likely - below), likely + above)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a model (or all of them) takes; `basis` is where the figures come from."""

    seconds: Range
    disk: Range
    memory: Range
    basis: str


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates for a plan; models of which nothing is known are left out."""

    models: Mapping[str, Cost]
    cells: Mapping[str, float]
    """Seconds of each cell; work that cells share counts with the first of them."""
    unknown: int = 0
    peaks: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Peak memory by model, stage and component, for those that have run before."""
    sizes: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Likewise the bytes that they wrote."""
    if_changed: bool = False
    """Whether the sweep builds only what has changed; it then takes this much at most."""

    def disk_of(self, cell: Cell, stage: str, component: str) -> int:
        """Bytes that a stage is expected to write; 0: unknown."""
        return self.sizes.get((cell.model.name, stage, component), 0)

    def memory_of(self, cell: Cell, stage: str, component: str) -> int:
        """The expected peak memory of a stage in bytes; 0: unknown."""
        known = self.peaks.get((cell.model.name, stage, component))
        if known is not None:
            return known
        cost = self.models.get(cell.model.name)
        return int(cost.memory.likely) if cost else 0

    def seconds(self, model: str) -> float:
        """The likely time of a model; 0.0: unknown."""
        cost = self.models.get(model)
        return cost.seconds.likely if cost else 0.0

    def wall(self, slots: int) -> Range:
        """The time until the last slot is done, if the longest models go first."""
        parts = [cost.seconds for cost in self.models.values()]
        spent, whole = makespan([one.likely for one in parts], slots), total(parts)
        scale = spent / whole.likely if whole.likely else 0.0
        # No sweep ends before its longest model does.
        longest = max((one.low for one in parts), default=0.0)
        low = max(longest, whole.low * scale) / COMMON
        return Range(spent, low, whole.high * scale * COMMON)

    def disk(self) -> Range:
        """Disk for all models together, before anything is evicted."""
        return total(cost.disk for cost in self.models.values())

    def memory(self, slots: int) -> Range:
        """Memory if the largest models are built at the same time."""
        peaks = sorted((cost.memory for cost in self.models.values()), key=lambda one: -one.likely)
        return total(peaks[:slots])


def makespan(seconds: Iterable[float], slots: int) -> float:
    """When the last slot is done, if each always takes the longest model that is left."""
    busy = [0.0] * max(1, slots)
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(busy, busy[0] + one)
    return max(busy)


def estimate(plan: Plan, state: StateReader) -> Estimates:
    """Estimate a plan from the state's history."""
    overheads = state.overheads()
    units = state.unit_costs()
    history = _History(units, overheads)
    types = {model.name: _kind(model.model) for model in plan.models}
    models: dict[str, Cost] = {}
    cells: dict[str, float] = {}
    unknown = 0
    for planned in plan.models:
        cost, shares = history.own(planned) or history.similar(planned, types) or (None, {})
        if cost is None:
            unknown += 1
        else:
            models[planned.name] = cost
            cells |= shares
    peaks: dict[tuple[str, str, str], int] = {}
    sizes: dict[tuple[str, str, str], int] = {}
    for unit in units:
        place = (unit.model, unit.stage, unit.component)
        peaks[place] = max(unit.peak_memory, peaks.get(place, 0))
        sizes[place] = max(unit.bytes, sizes.get(place, 0))
    return Estimates(models, cells, unknown, peaks, sizes)


def _kind(model: Model) -> tuple[str, str]:
    return model.task, model.model_type


class _History:
    """What each model cost last."""

    def __init__(self, units: Sequence[StageRun], overheads: Mapping[str, float]) -> None:
        self._overheads = overheads
        self._usual = median(overheads.values()) if overheads else 0.0
        self._units: dict[str, list[StageRun]] = defaultdict(list)
        for unit in units:
            self._units[unit.model].append(unit)
        self._whole = {name: _whole(listed) for name, listed in self._units.items()}

    def own(self, planned: PlannedModel) -> tuple[Cost, dict[str, float]] | None:
        """From the model's own past with the planned targets."""
        units = self._units.get(planned.name)
        if not units:
            return None
        wanted = [cell.id for cell in planned.cells if not cell.skip]
        by_cell: dict[str, list[StageRun]] = defaultdict(list)
        for unit in units:
            by_cell[unit.cell].append(unit)
        if wanted and not any(cell in by_cell for cell in wanted):
            return self._elsewhere(planned.name, wanted, by_cell)
        shares: dict[str, float] = {}
        counted: dict[str, StageRun] = {}
        seconds: list[Range] = []
        for cell in wanted:
            fresh = {u.key: u for u in by_cell.get(cell, ()) if u.key not in counted}
            counted |= fresh
            parts = [unit.seconds for unit in fresh.values()]
            parts.append(self._overheads.get(cell, self._usual))
            shares[cell] = sum(parts)
            seconds += map(Range.around, parts)
        known = [share for cell, share in shares.items() if cell in by_cell]
        for cell in wanted if known else ():
            if cell not in by_cell:  # a target that the model was never built for
                shares[cell] = median(known)
                seconds.append(Range.among(known))
        cost = Cost(
            total(seconds),
            Range.around(sum(unit.bytes for unit in counted.values())),
            Range.around(max((unit.peak_memory for unit in counted.values()), default=0)),
            "its own history",
        )
        return cost, shares

    def _elsewhere(
        self, name: str, wanted: Sequence[str], by_cell: Mapping[str, list[StageRun]]
    ) -> tuple[Cost, dict[str, float]]:
        """From the model's past with other targets: the export once, and for each cell what a cell
        took beside it."""
        whole = self._whole[name]
        exports = {unit.key: unit for unit in self._units[name] if unit.stage == "export"}.values()
        export = sum(unit.seconds for unit in exports)
        rest = (whole.seconds - export) / len(by_cell) + self._usual
        shares = dict.fromkeys(wanted, rest) | {wanted[0]: export + rest}
        made = whole.size + (whole.disk - whole.size) / len(by_cell) * len(wanted)
        cost = Cost(
            Range.around(sum(shares.values()), 2 * SPREAD),
            Range.around(made, 2 * SPREAD),
            Range.around(whole.memory, 2 * SPREAD),
            "its other targets",
        )
        return cost, shares

    def similar(
        self, planned: PlannedModel, types: Mapping[str, tuple[str, str]]
    ) -> tuple[Cost, dict[str, float]] | None:
        """From models of its task and type, else of its task, else from all."""
        task, kind = _kind(planned.model)
        tiers = (
            (f"{kind} models for {task}", lambda name: types.get(name) == (task, kind)),
            (f"models for {task}", lambda name: name.rpartition(":")[2] == task),
            ("all models", lambda _name: True),
        )
        for basis, belongs in tiers:
            names = [name for name in self._whole if belongs(name)]
            if names:
                return self._like(planned, names, basis)
        return None

    def _like(
        self, planned: PlannedModel, names: Sequence[str], basis: str
    ) -> tuple[Cost, dict[str, float]]:
        size = source_size(planned.model)
        others = [self._whole[name] for name in names]
        if size:
            others.sort(key=lambda one: abs(math.log(max(one.size, 1) / size)))
            others = others[:NEAREST]
        count = sum(1 for cell in planned.cells if not cell.skip)
        scales = [size / one.size if size and one.size else 1.0 for one in others]
        pairs = list(zip(others, scales, strict=True))
        cost = Cost(
            total(
                [
                    Range.among([one.seconds * scale for one, scale in pairs]),
                    Range.around(count * self._usual),
                ]
            ),
            Range.among([one.disk * scale for one, scale in pairs]),
            # A host needs much of its memory whatever it builds.
            Range.among([one.memory * max(1.0, scale) for one, scale in pairs]),
            basis,
        )
        wanted = [cell.id for cell in planned.cells if not cell.skip]
        return cost, dict.fromkeys(wanted, cost.seconds.likely / max(1, count))


@dataclass(frozen=True, slots=True)
class _Whole:
    """What all distinct stage runs of a model cost together."""

    seconds: float
    disk: float
    memory: float
    size: float
    """Bytes of its export: the size of the model."""


def _whole(units: Sequence[StageRun]) -> _Whole:
    distinct = {unit.key: unit for unit in units}.values()
    return _Whole(
        seconds=sum(unit.seconds for unit in distinct),
        disk=sum(unit.bytes for unit in distinct),
        memory=max(unit.peak_memory for unit in distinct),
        size=sum(unit.bytes for unit in distinct if unit.stage == "export"),
    )


def source_size(model: Model) -> int:
    """Bytes of the weights; 0: not known without asking a hub."""
    if model.source.kind is not SourceKind.FOLDER:
        return 0
    folder = Path(model.source.ref)
    if model.source.file:
        folder = (folder / model.source.file).parent
    weights = (".safetensors", ".bin", ".onnx")
    try:
        return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in weights)
    except OSError:
        return 0
