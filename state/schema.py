"""The tables, once for SQLite and PostgreSQL. Times are seconds since the epoch, by the database.

Each is an SQLModel that has the fields of the record that is read from it (`state.records`), and
what only the database needs. Readers answer without these models. CHECK constraints tie a status to
the columns that it needs, so that not even a bug can record a published cell without a digest or a
failed one without a class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from types import UnionType, new_class
from typing import Any, cast, get_args, get_type_hints

import sqlalchemy as sa
from sqlalchemy.schema import SchemaItem
from sqlmodel import Field, SQLModel

from matrix.status import FAILED, Status
from matrix.trials import OF_ARTIFACTS, OVER
from state.records import Bench, Event, Holder, Json, Measurement, Outcome, StageRun, SweepInfo
from state.transitions import RUNNING
from state.tunings import SessionRow, TrialRow, TuningRow

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_JSON = sa.JSON(none_as_null=True)
_TYPES: dict[Any, Any] = {int: _BIG, float: sa.Float, bool: sa.Boolean, Json: _JSON}
"""All others are kept as text."""
_OF_SWEEP = ["sweep_id", "model", "needs"]


class Base(SQLModel):
    """The metadata of our tables; constraints have names so that migrations can find them."""

    metadata = sa.MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "uq": "uq_%(table_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )


metadata = Base.metadata


def _table(
    record: type | None,
    name: str,
    *more: SchemaItem,
    key: Collection[str] = ("id",),
    without: Collection[str] = (),
    **options: Any,
) -> sa.Table:
    """The table of a model with the fields of a record, but for those that `more` defines and
    `without`."""
    columns = [item for item in more if isinstance(item, sa.Column)]
    checks = [item for item in more if not isinstance(item, sa.Column)]
    absent = {*without, *(column.name for column in columns)}
    for field, hint in get_type_hints(record).items() if record else ():
        if field in absent:
            continue
        optional = isinstance(hint, UnionType)
        kind = get_args(hint)[0] if optional else hint
        columns.append(
            sa.Column(field, _TYPES.get(kind, sa.Text), primary_key=field in key, nullable=optional)
        )
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            checks.append(_check(field, _in(field, kind)))
    body = {
        "__tablename__": name,
        "__table_args__": (*checks, options),
        "__annotations__": {column.name: Any for column in columns},
        **{column.name: Field(sa_column=column) for column in columns},
    }
    model = new_class(f"{name}_row", (Base,), {"table": True}, lambda space: space.update(body))
    return cast("sa.Table", model.__table__)  # type: ignore[attr-defined]  # made by the metaclass


def _in(column: str, values: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def _check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=name)


def _sweep_id(*, key: bool = False, nullable: bool = False) -> sa.Column[Any]:
    reference = sa.ForeignKey("sweep.id")
    return sa.Column("sweep_id", _BIG, reference, primary_key=key, nullable=nullable)


_failed = _in("status", (status for status in Status if status in FAILED))
_running = _in("status", RUNNING)
_unended = _in("status", ("planned", "building", "built", "verifying", "publishing"))

sweep = _table(
    SweepInfo,
    "sweep",
    sa.UniqueConstraint("stamp", "feed"),
    _check("ended", "(exit_code IS NULL) = (ended_at IS NULL)"),
    without=("created", "run"),
)
"""A batch: a stamp on a feed, with the settings of its last run."""

outcome = _table(
    Outcome,
    "outcome",
    _sweep_id(key=True),
    sa.Index("ix_outcome_model", "sweep_id", "model"),
    sa.Index("ix_outcome_status", "sweep_id", "status"),
    _check("failed", f"({_failed}) = (failure IS NOT NULL AND retryable IS NOT NULL)"),
    _check("running", f"NOT ({_running}) OR (token IS NOT NULL AND started_at IS NOT NULL)"),
    _check("ended", f"status = 'verified' OR ({_unended}) = (ended_at IS NULL)"),
    _check("published", "status <> 'published' OR published_at IS NOT NULL"),
    _check("content", "status NOT IN ('published', 'unchanged') OR tree IS NOT NULL"),
    _check("skipped", "status <> 'skipped' OR message IS NOT NULL"),
    _check("tree", "length(tree) = 64"),
    _check("attempts", "attempts >= 0"),
    key=("cell",),
)
"""Where each cell stands; changed only together with an event that says so."""

event = _table(
    Event,
    "event",
    _sweep_id(),
    sa.Index("ix_event_sweep", "sweep_id", "id"),
    sqlite_autoincrement=True,  # SQLite would otherwise give the id of a deleted last row again
)
"""The history: appended, never changed. The id of a `leased` event is the fencing token."""

work = _table(
    None,
    "work",
    _sweep_id(key=True),
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("needs", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    # Seconds; `begin` ranks the positions by it, longest first.
    sa.Column("estimate", sa.Float, nullable=False),
    # Leases taken, and those that ended without a release since the sweep was last begun.
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("lost", sa.Integer, nullable=False),
    sa.Column("evidence", _JSON),
    sa.Index("ix_work_order", "sweep_id", "position", "state"),
    _check("state", "state IN ('todo', 'leased', 'done', 'poison')"),
    _check("counts", "attempts >= 0 AND lost >= 0"),
    _check("poison", "state <> 'poison' OR evidence IS NOT NULL"),
)
"""What is handed out: the cells of a model that need the same of a machine."""

lease = _table(
    Holder,
    "lease",
    sa.Column("pid_started", sa.Text, nullable=False),
    sa.Column("ttl", sa.Float, nullable=False),
    sa.ForeignKeyConstraint(_OF_SWEEP, [f"work.{name}" for name in _OF_SWEEP]),
    _check("times", "expires_at >= renewed_at AND ttl >= 0"),
    key=_OF_SWEEP,
    without=("expired",),
)
"""Who holds which work; a row lives as long as the lease."""

stage_key = _table(
    None,
    "stage_key",
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("parts", _JSON, nullable=False),
)
"""What a stage key was made of, for `explain`."""

stage_run = _table(
    StageRun,
    "stage_run",
    _sweep_id(nullable=True),
    sa.Column("key", sa.Text, sa.ForeignKey("stage_key.key"), nullable=False),
    sa.Index("ix_stage_run_model", "model", "stage", "id"),
    sa.Index("ix_stage_run_sweep", "sweep_id", "cell"),
    _check("costs", "seconds >= 0 AND bytes >= 0 AND peak_memory >= 0"),
    without=("parts",),
)
"""A stage that ran, or was reused, for a cell. Without a sweep: that is gone, but others reuse the
result, and its cost is in no other row."""

bench = _table(
    Bench,
    "bench",
    sa.Column("sweep_id", _BIG, primary_key=True),
    sa.Column(
        "protocol", sa.Text, nullable=False
    ),  # JSON with sorted keys: equal ones are equal text
    sa.ForeignKeyConstraint(["sweep_id", "cell"], ["outcome.sweep_id", "outcome.cell"]),
    sa.Index("ix_bench_work", "sweep_id", "model", "needs"),
    _check("failed", "state <> 'failed' OR message IS NOT NULL"),
    key=("cell",),
)
"""A cell of a sweep that is to be measured once it is published."""

measurement = _table(
    Measurement,
    "measurement",
    sa.Column("raw", sa.LargeBinary),  # compressed JSON
    sa.Index("ix_measurement_tree", "tree"),
    _check("tree", "length(tree) = 64"),
)
"""A measurement of a package on a runtime of a machine, by a protocol."""

tuning = _table(
    TuningRow,
    "tuning",
    sa.UniqueConstraint("name", "model", "target"),
    _check("ended", f"({_in('status', OVER)}) = (ended_at IS NOT NULL)"),
    _check("failed", "status <> 'failed' OR message IS NOT NULL"),
)
"""The tuning of one model on one target."""

trial = _table(
    TrialRow,
    "trial",
    sa.Column("tuning_id", _BIG, sa.ForeignKey("tuning.id"), primary_key=True),
    _check("built", f"NOT ({_in('verdict', OF_ARTIFACTS)}) OR tree IS NOT NULL"),
    _check("tree", "length(tree) = 64"),
    key=("key",),
)
"""A build of the model that is compared with the baseline, or the baseline."""

trial_session = _table(
    SessionRow,
    "trial_session",
    sa.Column("raw", sa.LargeBinary, nullable=False),  # compressed JSON
    sa.ForeignKeyConstraint(["tuning_id", "trial"], ["trial.tuning_id", "trial.key"]),
    _check("number", "number >= 1"),
    key=("tuning_id", "trial", "kind", "component", "number"),
)
"""A finished session of a trial."""
