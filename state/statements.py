"""The statements of recording, each worked out once for a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
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
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from matrix.status import Status
from state.database import now
from state.moves import FORGET
from state.prepared import Prepared
from state.records import StageRow
from state.schema import event, lease, outcome, stage_key, stage_run
from state.transitions import RUNNING, SOURCES

_KEPT = ("tree", "stage", "exit_code", "message", "hint", "log_tail", "bytes", "seconds")
_KEPT_JSON = ("evidence", "detail")

KEPT = 256
"""Prepared statements of a process: a few dozen for each database that it has open."""
_RUN = ("sweep_id", "model", *(name for name in StageRow.__slots__ if name != "parts"))
_TOLD = ("sweep_id", "cell", "kind", "status", "token", "owner", "data")


@lru_cache(KEPT)
def change(dialect: Dialect, status: Status, fenced: bool) -> Prepared:
    """The guarded UPDATE for a new status; PostgreSQL adds the event in the same statement."""
    build = _transition if dialect.name == "sqlite" else _told_at_once
    return Prepared(build(status, fenced), dialect)


@lru_cache(KEPT)
def add_told(dialect: Dialect) -> Prepared:
    """The event of a change."""
    return Prepared(insert(event).values(at=now()), dialect, ("model", *_TOLD))


@lru_cache(KEPT)
def add_key(dialect: Dialect) -> Prepared:
    """What a stage's key was made of (SQLite)."""
    new = sqlite.insert(stage_key).on_conflict_do_nothing()
    return Prepared(new, dialect, ("key", "parts"))


@lru_cache(KEPT)
def add_run(dialect: Dialect) -> Prepared:
    """A stage that ran or was reused."""
    return Prepared(insert(stage_run).values(at=now()), dialect, _RUN)


def stage_rows(
    sweep_id: int, model: str, stages: Sequence[StageRow]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `stage_key` and `stage_run`."""
    keys = {row.key: {"key": row.key, "parts": row.parts} for row in stages}
    runs = [
        {
            **{name: getattr(row, name) for name in _RUN[2:]},
            "sweep_id": sweep_id,
            "model": model,
            "seconds": max(row.seconds, 0.0),  # the clock may have been set back
        }
        for row in stages
    ]
    # In one order, so that two writers of the same keys cannot block each other.
    return [keys[key] for key in sorted(keys)], runs


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
