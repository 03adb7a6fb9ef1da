"""The tables, once for SQLite and PostgreSQL. Times are seconds since the epoch, by the database.

CHECK constraints tie a status to the columns that it needs, so that not even a bug can record
a published cell without a digest or a failed one without a class.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy import Index as Idx
from sqlmodel import Field, SQLModel

from matrix.status import FAILED, FailureClass, Status
from state.records import BenchState, Kind, MeasurementKind
from state.transitions import RUNNING

WORK_STATES = ("todo", "leased", "done", "poison")

_json = JSON(none_as_null=True)
_big = BigInteger().with_variant(Integer, "sqlite")


def _in(column: str, values: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def _check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)


_failed = _in("status", (status for status in Status if status in FAILED))
_running = _in("status", RUNNING)
_unended = _in("status", ("planned", "building", "built", "verifying", "publishing"))


class Base(SQLModel):
    """Our own metadata, with names for every constraint so that migrations can find them."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "uq": "uq_%(table_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )


class SweepTable(Base, table=True):
    """A batch: a stamp on a feed, with the settings of its last run."""

    __tablename__ = "sweep"
    __table_args__ = (
        UniqueConstraint("stamp", "feed"),
        _check("ended", "(exit_code IS NULL) = (ended_at IS NULL)"),
    )

    id: int | None = Field(default=None, primary_key=True)
    stamp: str
    feed: str
    publish: bool
    settings: dict[str, Any] = Field(sa_type=_json)
    selection: dict[str, Any] = Field(sa_type=_json)
    created_at: float
    begun_at: float
    ended_at: float | None = None
    exit_code: int | None = None


class OutcomeTable(Base, table=True):
    """Where each cell stands; changed only together with an event that says so."""

    __tablename__ = "outcome"
    __table_args__ = (
        Idx("ix_outcome_model", "sweep_id", "model"),
        Idx("ix_outcome_status", "sweep_id", "status"),
        _check("status", _in("status", Status)),
        _check("failure", _in("failure", FailureClass)),
        _check("failed", f"({_failed}) = (failure IS NOT NULL AND retryable IS NOT NULL)"),
        _check("running", f"NOT ({_running}) OR (token IS NOT NULL AND started_at IS NOT NULL)"),
        _check("ended", f"status = 'verified' OR ({_unended}) = (ended_at IS NULL)"),
        _check("published", "status <> 'published' OR published_at IS NOT NULL"),
        _check("content", "status NOT IN ('published', 'unchanged') OR tree IS NOT NULL"),
        _check("skipped", "status <> 'skipped' OR message IS NOT NULL"),
        _check("tree", "length(tree) = 64"),
        _check("attempts", "attempts >= 0"),
    )

    sweep_id: int = Field(primary_key=True, foreign_key="sweep.id")
    cell: str = Field(primary_key=True)
    model: str
    target: str
    precision: str
    package: str
    version: str
    needs: str
    """A JSON list of sorted words, so that equal needs are equal text."""
    status: str
    tree: str | None = None
    failure: str | None = None
    stage: str | None = None
    exit_code: int | None = Field(default=None, sa_type=_big)  # Windows: 0xC0000005 and the like
    message: str | None = Field(default=None, sa_type=Text)
    hint: str | None = Field(default=None, sa_type=Text)
    log_tail: str | None = Field(default=None, sa_type=Text)
    retryable: bool | None = None
    attempts: int = 0
    token: int | None = Field(default=None, sa_type=_big)
    started_at: float | None = None
    ended_at: float | None = None
    published_at: float | None = None
    bytes: int | None = Field(default=None, sa_type=_big)
    seconds: float | None = None
    evidence: dict[str, Any] | None = Field(default=None, sa_type=_json)
    detail: dict[str, Any] | None = Field(default=None, sa_type=_json)


class EventTable(Base, table=True):
    """The history: appended, never changed. The id of a `leased` event is the fencing token."""

    __tablename__ = "event"
    __table_args__ = (
        Idx("ix_event_sweep", "sweep_id", "id"),
        _check("kind", _in("kind", Kind)),
        _check("status", _in("status", Status)),
        # AUTOINCREMENT: SQLite would otherwise give the id of a deleted last row again.
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_big)
    at: float
    sweep_id: int = Field(foreign_key="sweep.id")
    cell: str | None = None
    model: str | None = None
    kind: str
    status: str | None = None
    token: int | None = Field(default=None, sa_type=_big)
    owner: str | None = None
    data: dict[str, Any] | None = Field(default=None, sa_type=_json)


class WorkTable(Base, table=True):
    """What is handed out: the cells of a model that need the same of a machine."""

    __tablename__ = "work"
    __table_args__ = (
        # The order in which work is handed out, without what is finished.
        Idx(
            "ix_work_open",
            "sweep_id",
            "position",
            sqlite_where=text("state IN ('todo', 'leased')"),
            # The migration says the same for PostgreSQL: here it would load that dialect.
        ),
        _check("state", _in("state", WORK_STATES)),
        _check("counts", "attempts >= 0 AND lost >= 0"),
        _check("poison", "state <> 'poison' OR evidence IS NOT NULL"),
    )

    sweep_id: int = Field(primary_key=True, foreign_key="sweep.id")
    model: str = Field(primary_key=True)
    needs: str = Field(primary_key=True)
    state: str
    position: int
    estimate: float
    """Seconds; `begin` ranks the positions by it, longest first."""
    attempts: int = 0
    """Leases taken."""
    lost: int = 0
    """Leases that ended without a release since the sweep was last begun."""
    evidence: list[Any] | None = Field(default=None, sa_type=_json)


class LeaseTable(Base, table=True):
    """Who holds which work; a row lives as long as the lease."""

    __tablename__ = "lease"
    __table_args__ = (
        ForeignKeyConstraint(
            ["sweep_id", "model", "needs"], ["work.sweep_id", "work.model", "work.needs"]
        ),
        _check("times", "expires_at >= renewed_at AND ttl >= 0"),
    )

    sweep_id: int = Field(primary_key=True)
    model: str = Field(primary_key=True)
    needs: str = Field(primary_key=True)
    token: int = Field(sa_type=_big)
    owner: str
    host: str
    pid: int
    pid_started: str
    taken_at: float
    renewed_at: float
    expires_at: float
    ttl: float
    cell: str | None = None
    activity: str | None = Field(default=None, sa_type=Text)


class StageKeyTable(Base, table=True):
    """What a stage key was made of, for `explain`."""

    __tablename__ = "stage_key"

    key: str = Field(primary_key=True)
    parts: dict[str, Any] = Field(sa_type=_json)


class StageRunTable(Base, table=True):
    """A stage that ran, or was reused, for a cell."""

    __tablename__ = "stage_run"
    __table_args__ = (
        Idx("ix_stage_run_model", "model", "stage", "id"),
        Idx("ix_stage_run_sweep", "sweep_id", "cell"),
        _check("costs", "seconds >= 0 AND bytes >= 0 AND peak_memory >= 0"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_big)
    at: float
    sweep_id: int = Field(foreign_key="sweep.id")
    model: str
    cell: str
    target: str
    component: str
    stage: str
    key: str = Field(foreign_key="stage_key.key")
    reused: bool
    seconds: float
    bytes: int = Field(sa_type=_big)
    peak_memory: int = Field(sa_type=_big)


class BenchTable(Base, table=True):
    """A cell of a sweep that is to be measured once it is published."""

    __tablename__ = "bench"
    __table_args__ = (
        ForeignKeyConstraint(["sweep_id", "cell"], ["outcome.sweep_id", "outcome.cell"]),
        Idx("ix_bench_work", "sweep_id", "model", "needs"),
        _check("state", _in("state", BenchState)),
        _check("failed", "state <> 'failed' OR message IS NOT NULL"),
    )

    sweep_id: int = Field(primary_key=True)
    cell: str = Field(primary_key=True)
    model: str
    needs: str
    """Of the machine that measures; a JSON list like that of an outcome."""
    state: str
    protocol: str = Field(sa_type=Text)
    """JSON, as in `measurement`."""
    message: str | None = Field(default=None, sa_type=Text)
    """Why it could not be measured."""


class MeasurementTable(Base, table=True):
    """A measurement of a package on a runtime of a machine, by a protocol."""

    __tablename__ = "measurement"
    __table_args__ = (
        Idx("ix_measurement_tree", "tree"),
        _check("kind", _in("kind", MeasurementKind)),
        _check("tree", "length(tree) = 64"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_big)
    at: float
    kind: str
    tree: str
    """The digest of the package."""
    cell: str
    stamp: str
    component: str
    """Of a composite; empty: the only model."""
    runtime: str
    provider: str
    device: str
    version: str
    """Of the runtime."""
    emulated: bool
    machine: str
    protocol: str = Field(sa_type=Text)
    """JSON with sorted keys, so that equal protocols are equal text."""
    percentiles: dict[str, Any] = Field(sa_type=_json)
    """Milliseconds, by name."""
    detail: dict[str, Any] = Field(sa_type=_json)
    raw: bytes | None = Field(default=None, sa_type=LargeBinary)
    """As `records.Measurement` has it; compressed JSON."""


sweep = Base.metadata.tables["sweep"]
outcome = Base.metadata.tables["outcome"]
event = Base.metadata.tables["event"]
work = Base.metadata.tables["work"]
lease = Base.metadata.tables["lease"]
stage_key = Base.metadata.tables["stage_key"]
stage_run = Base.metadata.tables["stage_run"]
bench = Base.metadata.tables["bench"]
measurement = Base.metadata.tables["measurement"]
