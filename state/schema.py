"""The tables, once for SQLite and PostgreSQL. Times are seconds since the epoch, by the database.

CHECK constraints tie a status to the columns that it needs, so that not even a bug can record a
published cell without a digest or a failed one without a class. `state/statements.sql` holds what
changes the tables; nothing but a new or an older database needs these classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    UniqueConstraint,
)
from sqlalchemy import Text as SqlText
from sqlmodel import Field, SQLModel

from matrix.status import FAILED, FailureClass, Status
from matrix.trials import OF_ARTIFACTS, OVER, Phase, SessionKind, TuningStatus, Verdict
from state.records import BenchState, Kind, MeasurementKind
from state.transitions import RUNNING

_BIG: Any = BigInteger().with_variant(Integer, "sqlite")
_JSON: Any = JSON(none_as_null=True)
Int = Annotated[int, Field(sa_type=_BIG)]
IntOrNull = Annotated[int | None, Field(sa_type=_BIG)]
Text = Annotated[str, Field(sa_type=SqlText)]
TextOrNull = Annotated[str | None, Field(sa_type=SqlText)]
Json = Annotated[dict[str, Any], Field(sa_type=_JSON)]
JsonOrNull = Annotated[Any, Field(sa_type=_JSON, nullable=True)]


class Table(SQLModel):
    """The metadata of our tables; constraints have names so that migrations can find them."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "uq": "uq_%(table_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )


metadata = Table.metadata


def _in(column: str, values: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def _check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)


def _words(column: str, values: Iterable[str]) -> CheckConstraint:
    return _check(column, _in(column, values))


_OF_WORK = ["sweep_id", "model", "needs"]
_failed = _in("status", (status for status in Status if status in FAILED))
_running = _in("status", RUNNING)
_unended = _in("status", ("planned", "building", "built", "verifying", "publishing"))


class Sweep(Table, table=True):
    """A batch: a stamp on a feed, with the settings of its last run."""

    id: Int
    stamp: Text
    feed: Text
    publish: bool
    settings: Json
    selection: Json
    created_at: float
    begun_at: float
    ended_at: float | None
    exit_code: IntOrNull

    __tablename__ = "sweep"
    __table_args__ = (
        PrimaryKeyConstraint("id"),
        UniqueConstraint("stamp", "feed"),
        _check("ended", "(exit_code IS NULL) = (ended_at IS NULL)"),
    )


class Plan(Table, table=True):
    """The plan of one or more runs of a sweep, once for all that have the same. `run`: the event of
    the last of them; `plan`: packed JSON."""

    sweep_id: Int
    digest: Text
    run: Int
    plan: bytes

    __tablename__ = "plan"
    __table_args__ = (
        PrimaryKeyConstraint("sweep_id", "digest"),
        ForeignKeyConstraint(["sweep_id"], ["sweep.id"]),
        _check("digest", "length(digest) = 64"),
    )


class Outcome(Table, table=True):
    """Where each cell stands; changed only together with an event that says so."""

    sweep_id: Int
    cell: Text
    model: Text
    target: Text
    precision: Text
    package: Text
    version: Text
    needs: Text
    status: Text
    tree: TextOrNull
    failure: TextOrNull
    stage: TextOrNull
    exit_code: IntOrNull
    message: TextOrNull
    hint: TextOrNull
    log_tail: TextOrNull
    retryable: bool | None
    attempts: Int
    token: IntOrNull
    started_at: float | None
    ended_at: float | None
    published_at: float | None
    bytes: IntOrNull
    seconds: float | None
    evidence: JsonOrNull
    detail: JsonOrNull

    __tablename__ = "outcome"
    __table_args__ = (
        PrimaryKeyConstraint("sweep_id", "cell"),
        ForeignKeyConstraint(["sweep_id"], ["sweep.id"]),
        Index("ix_outcome_model", "sweep_id", "model", "cell"),
        Index("ix_outcome_status", "sweep_id", "status"),
        _words("status", Status),
        _words("failure", FailureClass),
        _check("failed", f"({_failed}) = (failure IS NOT NULL AND retryable IS NOT NULL)"),
        _check("running", f"NOT ({_running}) OR (token IS NOT NULL AND started_at IS NOT NULL)"),
        _check("ended", f"status = 'verified' OR ({_unended}) = (ended_at IS NULL)"),
        _check("published", "status <> 'published' OR published_at IS NOT NULL"),
        _check("content", "status NOT IN ('published', 'unchanged') OR tree IS NOT NULL"),
        _check("skipped", "status <> 'skipped' OR message IS NOT NULL"),
        _check("tree", "length(tree) = 64"),
        _check("attempts", "attempts >= 0"),
    )


class Event(Table, table=True):
    """The history: appended, never changed. The id of a `leased` event is the fencing token."""

    id: Int
    at: float
    sweep_id: Int
    cell: TextOrNull
    model: TextOrNull
    kind: Text
    status: TextOrNull
    token: IntOrNull
    owner: TextOrNull
    data: JsonOrNull

    __tablename__ = "event"
    __table_args__ = (
        PrimaryKeyConstraint("id"),
        ForeignKeyConstraint(["sweep_id"], ["sweep.id"]),
        Index("ix_event_sweep", "sweep_id", "id"),
        _words("kind", Kind),
        _words("status", Status),
        # SQLite would otherwise give the id of a deleted last row again.
        {"sqlite_autoincrement": True},
    )


class Work(Table, table=True):
    """What is handed out: the cells of a model that need the same of a machine.

    `estimate`: seconds; `begin` ranks the positions by it, longest first. `attempts`: leases taken.
    `lost`: those that ended without a release since the sweep was last begun.
    """

    sweep_id: Int
    model: Text
    needs: Text
    state: Text
    position: int
    estimate: float
    attempts: int
    lost: int
    evidence: JsonOrNull

    __tablename__ = "work"
    __table_args__ = (
        PrimaryKeyConstraint(*_OF_WORK),
        ForeignKeyConstraint(["sweep_id"], ["sweep.id"]),
        Index("ix_work_order", "sweep_id", "position", "state"),
        _check("state", "state IN ('todo', 'leased', 'done', 'poison')"),
        _check("counts", "attempts >= 0 AND lost >= 0"),
        _check("poison", "state <> 'poison' OR evidence IS NOT NULL"),
    )


class Lease(Table, table=True):
    """Who holds which work; a row lives as long as the lease. `cell`, `activity`: what the holder
    is doing now."""

    sweep_id: Int
    model: Text
    needs: Text
    token: Int
    owner: Text
    host: Text
    pid: Int
    pid_started: Text
    taken_at: float
    renewed_at: float
    expires_at: float
    ttl: float
    cell: TextOrNull
    activity: TextOrNull

    __tablename__ = "lease"
    __table_args__ = (
        PrimaryKeyConstraint("model", "needs", "sweep_id"),
        ForeignKeyConstraint(_OF_WORK, [f"work.{name}" for name in _OF_WORK]),
        _check("times", "expires_at >= renewed_at AND ttl >= 0"),
    )


class StageKey(Table, table=True):
    """What a stage key was made of, for `explain`."""

    key: Text
    parts: Json

    __tablename__ = "stage_key"
    __table_args__ = (PrimaryKeyConstraint("key"),)


class StageRun(Table, table=True):
    """A stage that ran, or was reused, for a cell. Without a sweep: that is gone, but others reuse
    the result, and its cost is in no other row."""

    id: Int
    at: float
    sweep_id: IntOrNull
    model: Text
    cell: Text
    target: Text
    stage: Text
    component: Text
    key: Text
    reused: bool
    seconds: float
    bytes: Int
    peak_memory: Int

    __tablename__ = "stage_run"
    __table_args__ = (
        PrimaryKeyConstraint("id"),
        ForeignKeyConstraint(["sweep_id"], ["sweep.id"]),
        ForeignKeyConstraint(["key"], ["stage_key.key"]),
        Index("ix_stage_run_model", "model", "stage", "id"),
        Index("ix_stage_run_sweep", "sweep_id", "cell"),
        _check("costs", "seconds >= 0 AND bytes >= 0 AND peak_memory >= 0"),
    )


class Bench(Table, table=True):
    """A cell of a sweep that is to be measured once it is published. `protocol`: JSON with sorted
    keys, so that equal ones are equal text."""

    sweep_id: Int
    cell: Text
    model: Text
    needs: Text
    state: Text
    protocol: Text
    message: TextOrNull

    __tablename__ = "bench"
    __table_args__ = (
        PrimaryKeyConstraint("sweep_id", "cell"),
        ForeignKeyConstraint(["sweep_id", "cell"], ["outcome.sweep_id", "outcome.cell"]),
        Index("ix_bench_work", *_OF_WORK),
        _words("state", BenchState),
        _check("failed", "state <> 'failed' OR message IS NOT NULL"),
    )


class Measurement(Table, table=True):
    """A measurement of a package on a runtime of a machine, by a protocol. `raw`: packed JSON."""

    id: Int
    at: float
    kind: Text
    tree: Text
    cell: Text
    stamp: Text
    component: Text
    runtime: Text
    provider: Text
    device: Text
    version: Text
    emulated: bool
    machine: Text
    protocol: Json
    percentiles: Json
    detail: Json
    raw: bytes | None

    __tablename__ = "measurement"
    __table_args__ = (
        PrimaryKeyConstraint("id"),
        Index("ix_measurement_tree", "tree"),
        _words("kind", MeasurementKind),
        _check("tree", "length(tree) = 64"),
    )


class Tuning(Table, table=True):
    """The tuning of one model on one target."""

    id: Int
    name: Text
    model: Text
    target: Text
    position: Int
    status: Text
    message: TextOrNull
    created_at: float
    began_at: float | None
    ended_at: float | None
    detail: Json

    __tablename__ = "tuning"
    __table_args__ = (
        PrimaryKeyConstraint("id"),
        UniqueConstraint("name", "model", "target"),
        _words("status", TuningStatus),
        _check("ended", f"({_in('status', OVER)}) = (ended_at IS NOT NULL)"),
        _check("failed", "status <> 'failed' OR message IS NOT NULL"),
    )


class Trial(Table, table=True):
    """A build of the model that is compared with the baseline, or the baseline."""

    tuning_id: Int
    key: Text
    position: Int
    phase: Text
    verdict: TextOrNull
    tree: TextOrNull
    detail: Json

    __tablename__ = "trial"
    __table_args__ = (
        PrimaryKeyConstraint("tuning_id", "key"),
        ForeignKeyConstraint(["tuning_id"], ["tuning.id"]),
        _words("phase", Phase),
        _words("verdict", Verdict),
        _check("built", f"NOT ({_in('verdict', OF_ARTIFACTS)}) OR tree IS NOT NULL"),
        _check("tree", "length(tree) = 64"),
    )


class TrialSession(Table, table=True):
    """A finished session of a trial. `raw`: packed JSON."""

    tuning_id: Int
    trial: Text
    kind: Text
    component: Text
    number: Int
    at: float
    detail: Json
    raw: bytes

    __tablename__ = "trial_session"
    __table_args__ = (
        PrimaryKeyConstraint("tuning_id", "trial", "kind", "component", "number"),
        ForeignKeyConstraint(["tuning_id", "trial"], ["trial.tuning_id", "trial.key"]),
        _words("kind", SessionKind),
        _check("number", "number >= 1"),
    )
