"""What a sweep will take and what is left of it, in time, disk and memory, by earlier sweeps.

A model with a history costs what its distinct stage runs cost last. A model without one costs what
models of its task and type cost, else those of its task, else all: a part that is the same for
each, and a part that grows with the size of the weights. Where that size is not known, or no model
of about that size was built before, nothing is claimed. The plan, the progress line and the
scheduler use the same numbers, and the pace of a run corrects them.

Estimates assume that no stage is reused. They are recorded with the plan of a sweep: all who follow
it, in this process or on another machine, read the same ones from its events. The pace of the run
corrects them: cells that are reused make the rest shorter.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from flows.output.quantity import show_duration, show_size
from matrix.codec import from_json, to_json
from matrix.model import EXPORT, Cell, Model, Plan, PlannedModel, SourceKind, is_export
from state.records import StageRun

if TYPE_CHECKING:
    from state.reading import StateReader

NEAREST = 8
"""How many models of similar size an estimate of a new model is made from."""
FAR = 10
"""Models that are this many times smaller or larger say nothing about each other."""
ESTIMATE = "estimate"
"""Key of the event that has the estimates."""
_PRIOR = 0.1
"""The share of the whole that must be done before its pace counts as much as the past."""
_LATE = 0.1
"""The least that is left of a cell, as a share of its estimate, however long it has taken."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a model (or all of them) takes; `basis` is where the figures come from."""

    seconds: float
    disk: float
    memory: float
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
        cost = self.models.get(cell.model.name)
        usual = int(cost.memory) if cost else 0
        return self.peaks.get((cell.model.name, stage, component), usual)

    def seconds(self, model: str) -> float:
        """The likely time of a model; 0.0: unknown."""
        cost = self.models.get(model)
        return cost.seconds if cost else 0.0

    def wall(self, slots: int) -> float:
        """The time until the last slot is done, if the longest models go first."""
        return makespan((cost.seconds for cost in self.models.values()), slots)

    def disk(self) -> float:
        """Disk for all models together, before anything is evicted."""
        return sum(cost.disk for cost in self.models.values())

    def memory(self, slots: int) -> float:
        """Memory if the largest models are built at the same time."""
        return sum(sorted((cost.memory for cost in self.models.values()), reverse=True)[:slots])


def makespan(seconds: Iterable[float], slots: int) -> float:
    """When the last slot is done, if each always takes the longest model that is left."""
    busy = [0.0] * max(1, slots)
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(busy, busy[0] + one)
    return max(busy)


def estimate(plan: Plan, state: StateReader) -> Estimates:
    """Estimate a plan from the state's history."""
    units = state.unit_costs()
    history = _History(units, state.overheads())
    types = {model.name: _kind(model.model) for model in plan.models}
    models: dict[str, Cost] = {}
    cells: dict[str, float] = {}
    for planned in plan.models:
        if found := history.own(planned) or history.similar(planned, types):
            models[planned.name], shares = found
            cells |= shares
    unknown = sum(planned.name not in models for planned in plan.models)
    peaks: dict[tuple[str, str, str], int] = {}
    sizes: dict[tuple[str, str, str], int] = {}
    for unit in units:
        place = (unit.model, unit.stage, unit.component)
        peaks[place] = max(unit.peak_memory, peaks.get(place, 0))
        sizes[place] = max(unit.bytes, sizes.get(place, 0))
    return Estimates(models, cells, unknown, peaks, sizes)


def _kind(model: Model) -> tuple[str, str]:
    return model.task, model.model_type


@dataclass(frozen=True, slots=True)
class _Past:
    """What all distinct stage runs of a model cost together."""

    runs: Mapping[str, StageRun]
    """By their keys."""
    by_cell: Mapping[str, list[StageRun]]

    @classmethod
    def of(cls, units: Iterable[StageRun]) -> _Past:
        by_cell: dict[str, list[StageRun]] = defaultdict(list)
        for unit in units:
            by_cell[unit.cell].append(unit)
        return cls({unit.key: unit for listed in by_cell.values() for unit in listed}, by_cell)

    def seconds(self, stage: str = "") -> float:
        """Of one stage, or of all."""
        return sum(one.seconds for one in self.runs.values() if stage in ("", one.stage))

    def bytes(self, stage: str = "") -> int:
        """Of one stage, or of all; an export is as large as its model."""
        return sum(one.bytes for one in self.runs.values() if stage in ("", one.stage))

    @property
    def memory(self) -> int:
        return max(one.peak_memory for one in self.runs.values())


Shares = dict[str, float]
"""Seconds of the cells of a model."""


class _History:
    """What each model cost last."""

    def __init__(self, units: Sequence[StageRun], overheads: Mapping[str, float]) -> None:
        self._overheads = overheads
        self._usual = median(overheads.values()) if overheads else 0.0
        of_models: dict[str, list[StageRun]] = defaultdict(list)
        for unit in units:
            of_models[unit.model].append(unit)
        self._models = {name: _Past.of(listed) for name, listed in of_models.items()}

    def own(self, planned: PlannedModel) -> tuple[Cost, Shares] | None:
        """From the model's own past with the planned targets."""
        past = self._models.get(planned.name)
        if past is None:
            return None
        wanted = _wanted(planned)
        if wanted and past.by_cell.keys().isdisjoint(wanted):
            return self._elsewhere(past, wanted)
        shares: Shares = {}
        counted: dict[str, StageRun] = {}
        for cell in wanted:
            fresh = {one.key: one for one in past.by_cell.get(cell, ()) if one.key not in counted}
            counted |= fresh
            spent = sum(unit.seconds for unit in fresh.values())
            shares[cell] = spent + self._overheads.get(cell, self._usual)
        beside = [
            sum(one.seconds for one in runs if one.stage != EXPORT)
            + self._overheads.get(cell, self._usual)
            for cell, runs in past.by_cell.items()
            if cell in shares
        ]
        for cell in wanted if beside else ():
            if cell not in past.by_cell:  # a target that the model was never built for
                shares[cell] = median(beside)
        disk = sum(unit.bytes for unit in counted.values())
        memory = max((unit.peak_memory for unit in counted.values()), default=0)
        return Cost(sum(shares.values()), disk, memory, "its own history"), shares

    def _elsewhere(self, past: _Past, wanted: Sequence[str]) -> tuple[Cost, Shares]:
        """From the model's past with other targets: the export once, and for each cell what a cell
        took beside it."""
        cells, export, size = len(past.by_cell), past.seconds("export"), past.bytes("export")
        rest = (past.seconds() - export) / cells + self._usual
        shares = dict.fromkeys(wanted, rest) | {wanted[0]: export + rest}
        made = size + (past.bytes() - size) / cells * len(wanted)
        return Cost(sum(shares.values()), made, past.memory, "its other targets"), shares

    def similar(
        self, planned: PlannedModel, types: Mapping[str, tuple[str, str]]
    ) -> tuple[Cost, Shares] | None:
        """From models of its task and type, else of its task, else from all."""
        size, (task, kind) = source_size(planned.model), _kind(planned.model)
        if not size:
            return None
        tiers = (
            (f"{kind} models for {task}", lambda name: types.get(name) == (task, kind)),
            (f"models for {task}", lambda name: name.rpartition(":")[2] == task),
            ("all models", lambda _name: True),
        )
        for basis, belongs in tiers:
            others = [past for name, past in self._models.items() if belongs(name)]
            sized = [(past.bytes("export"), past) for past in others]
            if near := [(one, past) for one, past in sized if size / FAR <= one <= size * FAR]:
                return self._like(planned, size, near, basis)
        return None

    def _like(
        self, planned: PlannedModel, size: int, others: list[tuple[int, _Past]], basis: str
    ) -> tuple[Cost, Shares]:
        wanted = _wanted(planned)
        near = sorted(others, key=lambda pair: abs(math.log(pair[0] / size)))[:NEAREST]
        seconds = by_size(size, [(one, past.seconds()) for one, past in near])
        seconds += len(wanted) * self._usual
        disk = by_size(size, [(one, past.bytes()) for one, past in near])
        memory = by_size(size, [(one, past.memory) for one, past in near])
        shares = dict.fromkeys(wanted, seconds / max(1, len(wanted)))
        return Cost(seconds, disk, memory, basis), shares


def by_size(size: int, known: Sequence[tuple[int, float]]) -> float:
    """A figure for a size, from the figures of other sizes: a fixed part, and a part by size.

    The slope is the median over all pairs of clearly different sizes, so that one odd model changes
    little. It is taken to grow at most in proportion, and never to fall, with the size.
    """
    slopes = [
        (high - low) / (larger - smaller)
        for (smaller, low), (larger, high) in combinations(sorted(known), 2)
        if larger >= 2 * smaller
    ]
    steepest = median(figure / one for one, figure in known)
    slope = min(max(0.0, median(slopes)), steepest) if slopes else 0.0
    return max(0.0, median(figure - slope * one for one, figure in known)) + slope * size


def _wanted(planned: PlannedModel) -> list[str]:
    return [cell.id for cell in planned.cells if not cell.skip]


def source_size(model: Model) -> int:
    """Bytes of the weights; 0: not known without asking a hub."""
    if model.source.kind is not SourceKind.FOLDER:
        return 0
    folder = Path(model.source.ref)
    weights = {".safetensors", ".bin", ".onnx"}
    if model.source.file:
        folder = (folder / model.source.file).parent
        weights.add(Path(model.source.file).suffix)
    try:
        return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in weights)
    except OSError:
        return 0


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
