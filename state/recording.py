"""Recording: every change of a cell, refused where the token is not the model's any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from matrix.status import FailureClass, Status
from state.database import now
from state.errors import BadTransition, LeaseLost, StateError
from state.moves import FORGET, Part, add_event
from state.prepared import Prepared
from state.records import Facts, Json, Kind, Lease, StageRow
from state.schema import event, lease, outcome, stage_key, stage_run
from state.text import clean, clean_tail
from state.transitions import DEFAULT_CLASS, RUNNING, SOURCES

_KEPT = ("tree", "stage", "exit_code", "message", "hint", "log_tail", "bytes", "seconds")
_KEPT_JSON = ("evidence", "detail")
_IN_EVENT = ("tree", "failure", "stage", "exit_code", "message", "bytes", "seconds")


class Recording(Part):
    """The part of `State` that slots write to."""

    def record(
        self,
        held: Lease | None,
        sweep_id: int,
        cell: str,
        status: Status,
        facts: Facts = Facts(),  # noqa: B008 - frozen
        stages: Sequence[StageRow] = (),
    ) -> None:
        """Give a cell a new status with what is known of it, its event and its stage runs."""
        if held is None and status in RUNNING:
            raise StateError(f"{cell} cannot be {status} without a lease")
        values = _columns(status, facts)
        told = {
            "sweep_id": sweep_id,
            "cell": cell,
            "kind": Kind.STATUS.value,
            "status": status.value,
            "token": held.token if held else None,
            "owner": held.owner if held else None,
            "data": {k: values[k] for k in _IN_EVENT if values.get(k) is not None} or None,
        }
        fence = {} if held is None else {"f_model": held.model, "f_token": held.token}
        parameters = {
            "f_sweep": sweep_id,
            "f_cell": cell,
            **fence,
            **{f"v_{name}": value for name, value in values.items()},
        }
        if not self._db.sqlite:
            parameters |= {f"e_{name}": value for name, value in told.items()}
        with self._db.write() if stages else self._db.single() as connection:
            change = _change(connection.dialect, status, held is not None)
            moved = change.run(connection, parameters).first()
            if moved is None:
                _refuse(connection, held, sweep_id, cell, status)
            if self._db.sqlite:
                told["model"] = moved[0] if moved else None
                _add_event(connection.dialect).run(connection, told)
            if stages and moved:
                self._add_stages(connection, sweep_id, moved[0], stages)

    def stage(self, held: Lease, *stages: StageRow) -> None:
        """Record stage runs that belong to no change of status."""
        with self._db.write() as connection:
            _check_token(connection, held)
            self._add_stages(connection, held.sweep_id, held.model, stages)

    def note(self, sweep_id: int, kind: Kind, data: Json | None = None) -> int:
        """Append an event about the sweep as a whole; returns its id."""
        with self._db.write() as connection:
            return add_event(connection, sweep_id, kind, data=data)

    def _add_stages(
        self, connection: Connection, sweep_id: int, model: str, stages: Sequence[StageRow]
    ) -> None:
        keys = {row.key: {"key": row.key, "parts": row.parts} for row in stages}
        # In one order, so that two writers of the same keys cannot block each other.
        rows = [keys[key] for key in sorted(keys)]
        new = self._db.insert(stage_key).on_conflict_do_nothing()
        if self._db.sqlite:
            connection.execute(new, rows)
        else:  # here SQLAlchemy would send one statement for each
            connection.execute(new.values(rows))
        connection.execute(
            insert(stage_run).values(at=now()),
            [
                {
                    "sweep_id": sweep_id,
                    "model": model,
                    **{name: getattr(row, name) for name in StageRow.__slots__ if name != "parts"},
                    "seconds": max(row.seconds, 0.0),  # the clock may have been set back
                }
                for row in stages
            ],
        )


KEPT = 256
"""Prepared statements of a process: a few dozen for each database that it has open."""
_TOLD = ("sweep_id", "cell", "kind", "status", "token", "owner", "data")


@lru_cache(KEPT)
def _change(dialect: Dialect, status: Status, fenced: bool) -> Prepared:
    """The guarded UPDATE for a new status; PostgreSQL adds the event in the same statement."""
    sqlite = dialect.name == "sqlite"
    return Prepared((_transition if sqlite else _told_at_once)(status, fenced), dialect)


@lru_cache(KEPT)
def _add_event(dialect: Dialect) -> Prepared:
    return Prepared(insert(event).values(at=now()), dialect, ("model", *_TOLD))


def _columns(status: Status, facts: Facts) -> dict[str, Any]:
    failed = status.failed
    failure = facts.failure or DEFAULT_CLASS.get(status, FailureClass.UNKNOWN)
    retryable = failure.retries_itself if facts.retryable is None else facts.retryable
    message = facts.message
    if message is None and status is Status.SKIPPED:
        message = "skipped on purpose"
    return {
        "tree": facts.tree,
        "failure": failure.value if failed else None,
        "stage": clean(facts.stage),
        "exit_code": facts.exit_code,
        "message": clean(message),
        "hint": clean(facts.hint),
        "log_tail": clean_tail(facts.log_tail),
        "retryable": retryable if failed else None,
        "bytes": facts.bytes,
        "seconds": facts.seconds,
        "published_at": facts.published_at.timestamp() if facts.published_at else None,
        "evidence": dict(facts.evidence) if facts.evidence is not None else None,
        "detail": dict(facts.detail) if facts.detail is not None else None,
    }


def _transition(status: Status, fenced: bool) -> ReturningUpdate[Any]:
    was = outcome.c.status
    allowed: ColumnElement[bool] = _among(was, SOURCES[status])
    if status is Status.PUBLISHED:
        # Said twice with the same content (a repeated settle) it is still true.
        same = outcome.c.tree == bindparam("v_tree", type_=outcome.c.tree.type)
        allowed = or_(allowed, and_(was == Status.PUBLISHED.value, same))
    change = update(outcome).where(
        outcome.c.sweep_id == bindparam("f_sweep"), outcome.c.cell == bindparam("f_cell"), allowed
    )
    if fenced:
        # FOR SHARE (PostgreSQL): nobody takes the lease over between this check and our commit.
        held = (
            select(lease.c.model)
            .where(
                lease.c.model == bindparam("f_model"),
                lease.c.token == bindparam("f_token"),
                lease.c.sweep_id == bindparam("f_sweep"),
            )
            .with_for_update(read=True)
            .cte("held")
        )
        change = change.where(outcome.c.model.in_(select(held.c.model)))
    values: dict[str, Any] = {"status": literal(status.value)}
    if status is Status.PLANNED:
        values |= FORGET
    else:
        values |= _new_values(status, fenced)
    return change.values(**values).returning(outcome.c.model)


def _told_at_once(status: Status, fenced: bool) -> ReturningInsert[Any]:
    moved = _transition(status, fenced).cte("moved")
    told = [bindparam(f"e_{name}", type_=event.c[name].type) for name in _TOLD]
    return (
        insert(event)
        .from_select(["at", "model", *_TOLD], select(now(), moved.c.model, *told))
        .returning(event.c.model)
    )


def _among(column: ColumnElement[str], statuses: Iterable[Status]) -> ColumnElement[bool]:
    """Written out: a list of parameters would be worked into the statement at every execution."""
    return column.in_([literal_column(f"'{one.value}'") for one in sorted(statuses)])


def _new_values(status: Status, fenced: bool) -> dict[str, Any]:
    columns = outcome.c
    given = {
        name: bindparam(f"v_{name}", type_=columns[name].type)
        for name in (*_KEPT, *_KEPT_JSON, "failure", "retryable", "published_at")
    }
    values: dict[str, Any] = {
        name: func.coalesce(given[name], columns[name]) for name in (*_KEPT, *_KEPT_JSON)
    }
    values |= {"failure": given["failure"], "retryable": given["retryable"]}
    if fenced:
        values["token"] = bindparam("f_token")
    if status is Status.PUBLISHED:
        values["published_at"] = func.coalesce(given["published_at"], columns.published_at, now())
    was_running = _among(columns.status, RUNNING)
    if status in RUNNING:
        values["started_at"] = case((was_running, columns.started_at), else_=now())
        again = status is Status.BUILDING
        values["attempts"] = columns.attempts + (1 if again else case((was_running, 0), else_=1))
        values["ended_at"] = now() if status is Status.VERIFIED else None
    else:
        values["ended_at"] = now()
    return values


def _refuse(
    connection: Connection, held: Lease | None, sweep_id: int, cell: str, status: Status
) -> None:
    if held is not None:
        _check_token(connection, held)
    found = connection.execute(
        select(outcome.c.status, outcome.c.model).where(
            outcome.c.sweep_id == sweep_id, outcome.c.cell == cell
        )
    ).first()
    if found is None:
        raise StateError(f"there is no cell {cell} in sweep {sweep_id}")
    if held is not None and found.model != held.model:
        raise StateError(f"{cell} is not a cell of {held.model}, the model of the lease")
    raise BadTransition(f"{cell} is {found.status} and cannot become {status}")


def _check_token(connection: Connection, held: Lease) -> None:
    """Raise unless the lease is still the model's; keeps it so until the end of the transaction."""
    current = connection.execute(
        select(lease.c.token)
        .where(lease.c.model == held.model, lease.c.sweep_id == held.sweep_id)
        .with_for_update(read=True)
    ).scalar()
    if current != held.token:
        raise LeaseLost(
            f"{held.model} is no longer leased to {held.owner}; its late result was refused",
            hint="another worker took the model over",
        )
