"""The values that go into the state and come out of it, as frozen dataclasses.

Times that come out are seconds since the epoch, by the database's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from machine.processes import Process
from matrix.needs import to_text
from matrix.status import FailureClass, Status

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """A slot: its name, and the process it is a thread of."""

    name: str
    process: Process

    @classmethod
    def here(cls, name: str) -> Owner:
        """A slot of this process."""
        return cls(name, Process.current())


class Kind(StrEnum):
    """What an event is about. The first group belongs to cells, the second to models."""

    STATUS = "status"
    SEEDED = "seeded"
    UNSEEDED = "unseeded"
    RESUMED = "resumed"
    RETRY = "retry"
    HANDED_BACK = "handed_back"

    LEASED = "leased"
    RELEASED = "released"
    LOST = "lost"
    POISON = "poison"

    BEGUN = "begun"
    STARTED = "started"
    NOTICE = "notice"
    INTERRUPTED = "interrupted"
    INDEX = "index"
    ENDED = "ended"


class BenchState(StrEnum):
    """How far the benchmark of a cell has come."""

    WANTED = "wanted"
    MEASURED = "measured"
    FAILED = "failed"


class MeasurementKind(StrEnum):
    """What was measured: how long a run takes, where its time goes, or which of two is faster."""

    BENCHMARK = "benchmark"
    TRACE = "trace"
    COMPARISON = "comparison"


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell of the plan, as `begin` takes it."""

    cell: str
    model: str
    """`MODEL:TASK`."""
    target: str
    precision: str
    package: str
    version: str
    skip: str | None = None
    needs: Collection[str] = ()
    """What it needs of a machine; see `matrix.needs`."""
    bench: Collection[str] = ()
    """What measuring it needs of a machine; empty: it is not measured."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A cell whose version the feed has."""

    cell: str
    tree: str
    version: str
    published_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Seeded:
    """What a listing of the feed taught the state."""

    new: int
    """Cells that were not known to be published."""
    corrected: tuple[str, ...] = ()
    """Published cells for which another digest was recorded."""


@dataclass(frozen=True, slots=True)
class SweepInfo:
    """A sweep. Only `begin` sets `created` (whether it made the sweep) and `run` (the event of the
    run that it began)."""

    id: int
    stamp: str
    feed: str
    publish: bool
    settings: Json
    selection: Json
    created_at: float
    begun_at: float
    ended_at: float | None
    exit_code: int | None
    created: bool = False
    run: int = 0


class Work(NamedTuple):
    """The key of what is handed out: the cells of a model that need the same of a machine."""

    sweep_id: int
    model: str
    needs: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to build the cells of a model that have these needs, until somebody else gets a
    higher token for them."""

    sweep_id: int
    model: str
    needs: tuple[str, ...]
    token: int
    owner: str
    attempt: int
    """How many leases these cells have had in the sweep, this one included."""

    @property
    def work(self) -> Work:
        """The key of what is leased."""
        return Work(self.sweep_id, self.model, to_text(self.needs))


@dataclass(frozen=True, slots=True)
class Holder:
    """A lease as others see it."""

    model: str
    needs: tuple[str, ...]
    sweep_id: int
    token: int
    owner: str
    host: str
    pid: int
    taken_at: float
    renewed_at: float
    expires_at: float
    cell: str | None
    """The cell that `activity` is about."""
    activity: str | None
    """What the holder is doing now, in the engine's words."""
    expired: bool


@dataclass(frozen=True, slots=True)
class Remaining:
    """The work of a sweep by its state; a piece of work is the cells of a model that need the same
    of a machine."""

    todo: int = 0
    leased: int = 0
    done: int = 0
    poison: int = 0

    @property
    def open(self) -> int:
        """What may still be handed out, now or when its holder dies."""
        return self.todo + self.leased


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a cell with a new status. None leaves what was recorded before."""

    tree: str | None = None
    failure: FailureClass | None = None
    stage: str | None = None
    exit_code: int | None = None
    message: str | None = None
    hint: str | None = None
    log_tail: str | None = None
    retryable: bool | None = None
    bytes: int | None = None
    seconds: float | None = None
    published_at: datetime | None = None
    evidence: Json | None = None
    detail: Json | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The latest record of a cell."""

    sweep_id: int
    cell: str
    model: str
    target: str
    precision: str
    package: str
    version: str
    needs: tuple[str, ...]
    status: Status
    tree: str | None
    failure: FailureClass | None
    stage: str | None
    exit_code: int | None
    message: str | None
    hint: str | None
    log_tail: str | None
    retryable: bool | None
    attempts: int
    token: int | None
    started_at: float | None
    ended_at: float | None
    published_at: float | None
    bytes: int | None
    seconds: float | None
    evidence: Json | None
    detail: Json | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in the order of ids."""

    id: int
    at: float
    sweep_id: int
    cell: str | None
    model: str | None
    kind: Kind
    status: Status | None
    token: int | None
    owner: str | None
    data: Json | None


@dataclass(frozen=True, slots=True)
class StageRun:
    """A stage that ran or was reused for a cell."""

    cell: str
    target: str
    stage: str
    key: str
    parts: Json | None = None
    """What the key was made of; read it with `key_parts`."""
    component: str = ""
    reused: bool = False
    seconds: float = 0.0
    bytes: int = 0
    peak_memory: int = 0
    sweep_id: int = 0
    model: str = ""
    id: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A cell that a sweep measures."""

    cell: str
    model: str
    needs: tuple[str, ...]
    state: BenchState
    message: str | None = None
    """Why it could not be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A benchmark or a trace of a package, or its comparison with another one."""

    kind: MeasurementKind
    tree: str
    """The digest of the package."""
    cell: str
    """Empty where the package says none, like the stamp."""
    stamp: str
    component: str = ""
    runtime: str
    """The kind of runtime, see `workers.runtimes.runtime`."""
    provider: str
    device: str
    version: str
    """Of the runtime."""
    emulated: bool
    """Its times are no evidence for the device."""
    machine: str
    protocol: Json
    percentiles: Json
    """Milliseconds, by name."""
    detail: Json = field(default_factory=dict)
    raw: Json | None = None
    """Every sample of a benchmark or of both sides of a comparison, the whole result of a trace;
    read it with `raw_of`."""
    id: int = 0
    at: float = 0.0
