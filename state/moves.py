"""Set-based changes: many cells at once, each with its event, and the work that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, insert, select, update

from matrix.status import Status
from state.database import Database, now
from state.errors import StateError
from state.records import Kind
from state.schema import event, lease, outcome, sweep, work
from state.transitions import unfinished


class Part:
    """What the parts of `State` share: the database."""

    def __init__(self, database: Database) -> None:
        self._db = database


_FORGOTTEN = """
    failure stage exit_code message hint log_tail retryable
    started_at ended_at published_at seconds evidence detail
"""
FORGET: Mapping[str, Any] = dict.fromkeys(_FORGOTTEN.split())
"""Columns of an outcome that a cell loses when it is planned again."""

is_leased = exists(select(lease.c.model).where(lease.c.model == outcome.c.model))
"""Whether somebody holds the model of a cell (dead holders are removed beforehand)."""


def shift(
    connection: Connection,
    sweep_id: int,
    where: ColumnElement[bool],
    values: Mapping[str, Any],
    *,
    kind: Kind = Kind.STATUS,
    data: Mapping[str, Any] | None = None,
) -> list[str]:
    """Give every matching cell of a sweep `values` and write the events; returns the cells."""
    moved = connection.execute(
        update(outcome)
        .where(outcome.c.sweep_id == sweep_id, where)
        .values(**values)
        .returning(outcome.c.cell, outcome.c.model)
    ).all()
    if moved:
        status = str(values["status"])
        row = {"sweep_id": sweep_id, "kind": kind.value, "status": status, "data": data}
        connection.execute(
            insert(event).values(at=now()),
            [{**row, "cell": cell, "model": model} for cell, model in moved],
        )
    return sorted(cell for cell, _ in moved)


def plan_again(
    connection: Connection,
    sweep_id: int,
    where: ColumnElement[bool],
    *,
    kind: Kind,
    data: Mapping[str, Any] | None = None,
) -> list[str]:
    """Back to `planned`, with nothing left of what happened but the attempts and the events."""
    values = {**FORGET, "status": Status.PLANNED.value, "tree": None, "bytes": None}
    return shift(connection, sweep_id, where, values, kind=kind, data=data)


def hand_back(connection: Connection, sweep_id: int, model: str, *, publish: bool) -> None:
    """What a holder left half-done is to be done again by the next one."""
    half_done = and_(
        outcome.c.model == model, outcome.c.status.in_(_values(unfinished(publish=publish)))
    )
    plan_again(connection, sweep_id, half_done, kind=Kind.HANDED_BACK)


def open_cell(sweep_id: int, *, publish: bool) -> ColumnElement[bool]:
    """Whether the model of a row of `work` has a cell that is still to be done."""
    statuses = _values((Status.PLANNED, Status.CANCELLED, *unfinished(publish=publish)))
    return exists(
        select(outcome.c.cell).where(
            outcome.c.sweep_id == sweep_id,
            outcome.c.model == work.c.model,
            outcome.c.status.in_(statuses),
        )
    )


def settle_work(connection: Connection, sweep_id: int, *, publish: bool) -> None:
    """Work is `todo` exactly where a cell is open; what is leased stays as it is."""
    has_open = open_cell(sweep_id, publish=publish)
    mine = work.c.sweep_id == sweep_id
    connection.execute(
        update(work).where(mine, work.c.state == "todo", ~has_open).values(state="done")
    )
    connection.execute(
        update(work)
        .where(mine, work.c.state.in_(("done", "poison")), has_open)
        .values(state="todo", lost=0)
    )


def add_event(connection: Connection, sweep_id: int, kind: str, **columns: Any) -> int:
    """Append one event; returns its id."""
    added = connection.execute(
        insert(event).values(at=now()).returning(event.c.id),
        {"sweep_id": sweep_id, "kind": str(kind), **columns},
    )
    return int(added.scalar_one())


def publishes(connection: Connection, sweep_id: int) -> bool:
    """Whether a sweep publishes: only where it does not, `verified` is an end."""
    found = connection.execute(select(sweep.c.publish).where(sweep.c.id == sweep_id)).scalar()
    if found is None:
        raise StateError(f"there is no sweep {sweep_id} in this state")
    return bool(found)


def _values(statuses: Sequence[Status]) -> list[str]:
    return [status.value for status in statuses]
