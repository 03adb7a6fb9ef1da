"""Changes of many cells at once, each with its event, and of the work that follows from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, exists, insert, select, update

from matrix.status import Status
from state.database import Database, now
from state.errors import StateError
from state.records import Kind
from state.schema import event, lease, outcome, sweep, work
from state.transitions import WAITING, unfinished

_CHUNK = 500
"""Cells that one statement names; SQLite limits the parameters of a statement."""


class Part:
    """What the parts of `State` share: the database."""

    def __init__(self, database: Database) -> None:
        self._db = database


_FORGOTTEN = """
    failure stage exit_code message hint log_tail retryable
    started_at ended_at published_at seconds evidence detail
"""
FORGET: Mapping[str, Any] = dict.fromkeys(_FORGOTTEN.split())
"""Columns of an outcome that are cleared when its cell is planned again."""


def same_work(one: Table, other: Table) -> ColumnElement[bool]:
    """Whether rows of two tables belong to the same work."""
    return and_(*(one.c[name] == other.c[name] for name in ("sweep_id", "model", "needs")))


def of_work(table: Table, sweep_id: int, model: str, needs: str) -> ColumnElement[bool]:
    """Whether a row belongs to this work."""
    return and_(table.c.sweep_id == sweep_id, table.c.model == model, table.c.needs == needs)


is_leased = exists().where(same_work(lease, outcome))
"""Whether somebody holds a cell (dead holders are removed beforehand)."""


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
    """Back to `planned`; of what happened only the attempts and the events remain."""
    values = {**FORGET, "status": Status.PLANNED.value, "tree": None, "bytes": None}
    return shift(connection, sweep_id, where, values, kind=kind, data=data)


def named(cells: Collection[str]) -> Iterator[ColumnElement[bool]]:
    """Conditions for these cells, as many as one statement takes at a time."""
    listed = sorted(cells)
    for start in range(0, len(listed), _CHUNK):
        yield outcome.c.cell.in_(listed[start : start + _CHUNK])


def has_status(*statuses: Status) -> ColumnElement[bool]:
    """Whether a cell has one of these statuses."""
    return outcome.c.status.in_([status.value for status in statuses])


def hand_back(connection: Connection, sweep_id: int, model: str, needs: str) -> None:
    """Plan again what a holder leaves half done."""
    half_done = is_unfinished(connection, sweep_id)
    mine = of_work(outcome, sweep_id, model, needs)
    plan_again(connection, sweep_id, mine & half_done, kind=Kind.HANDED_BACK)


def settle_work(connection: Connection, sweep_id: int) -> None:
    """Make work `todo` exactly where a cell is open; what is leased stays as it is."""
    still_open = is_unfinished(connection, sweep_id, *WAITING)
    has_open = exists().where(same_work(outcome, work), still_open)
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


def is_unfinished(connection: Connection, sweep_id: int, *besides: Status) -> ColumnElement[bool]:
    """Whether an interrupted run left a cell half done; `besides`: or it has one of these."""
    found = connection.execute(select(sweep.c.publish).where(sweep.c.id == sweep_id)).scalar()
    if found is None:
        raise unknown_sweep(sweep_id)
    return has_status(*besides, *unfinished(publish=bool(found)))


def unknown_sweep(sweep_id: int) -> StateError:
    """The error of a sweep id that does not exist."""
    return StateError(f"there is no sweep {sweep_id} in this state")
