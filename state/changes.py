"""Changes of many cells at once, each with its event, and of the work that follows from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa

from matrix.status import Status
from state.database import Database, items, now
from state.errors import LeaseLost
from state.queries import unknown_sweep
from state.records import BenchState, Kind, Lease, Work
from state.rows import Part
from state.schema import bench, event, lease, outcome, sweep, work
from state.transitions import FINAL, WAITING, unfinished

T = TypeVar("T")


class WritingPart(Part):
    """What the parts of `State` that write share: the database."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database

    def _attempt(self, change: Callable[[sa.Connection], T], held: Lease | None = None) -> T:
        """Make a change in a transaction of its own; with a lease, only while that is held."""

        def guarded(connection: sa.Connection) -> T:
            if held is not None:
                check_token(connection, held)
            return change(connection)

        return self.database.attempt(guarded)


_FORGOTTEN = """
    failure stage exit_code message hint log_tail retryable
    started_at ended_at published_at seconds evidence detail
"""
FORGET: Mapping[str, Any] = dict.fromkeys(_FORGOTTEN.split())
"""Columns of an outcome that are cleared when its cell is planned again."""


def same_work(one: sa.Table, other: sa.Table) -> sa.ColumnElement[bool]:
    """Whether rows of two tables belong to the same work."""
    return sa.and_(*(one.c[name] == other.c[name] for name in Work._fields))


def of_work(table: sa.Table, key: Work) -> sa.ColumnElement[bool]:
    """Whether a row belongs to this work."""
    return sa.and_(*(table.c[name] == value for name, value in key._asdict().items()))


def bound(table: sa.Table, *names: str) -> sa.ColumnElement[bool]:
    """Whether a row has the values that its statement is executed with, as `of_` and the name.

    What runs for every cell is built once: building it takes longer than running it.
    """
    return sa.and_(*(table.c[name] == sa.bindparam(f"of_{name}") for name in names))


is_leased = sa.exists().where(same_work(lease, outcome))
"""Whether somebody holds a cell (dead holders are removed beforehand)."""


def shift(
    connection: sa.Connection,
    sweep_id: int,
    where: sa.ColumnElement[bool],
    values: Mapping[str, Any],
    *,
    kind: Kind = Kind.STATUS,
    data: Mapping[str, Any] | None = None,
) -> list[str]:
    """Give every matching cell of a sweep `values` and write the events; returns the cells."""
    moved = connection.execute(
        sa.update(outcome)
        .where(outcome.c.sweep_id == sweep_id, where)
        .values(**values)
        .returning(outcome.c.cell, outcome.c.model)
    ).all()
    if moved:
        status = str(values["status"])
        row = {"sweep_id": sweep_id, "kind": kind.value, "status": status, "data": data}
        connection.execute(
            sa.insert(event).values(at=now()),
            [{**row, "cell": cell, "model": model} for cell, model in moved],
        )
    return sorted(cell for cell, _ in moved)


def plan_again(
    connection: sa.Connection,
    sweep_id: int,
    where: sa.ColumnElement[bool],
    *,
    kind: Kind,
    data: Mapping[str, Any] | None = None,
) -> list[str]:
    """Back to `planned`; of what happened only the attempts and the events remain."""
    values = {**FORGET, "status": Status.PLANNED.value, "tree": None, "bytes": None}
    return shift(connection, sweep_id, where, values, kind=kind, data=data)


def named(
    names: Collection[str], column: sa.ColumnElement[str] = outcome.c.cell
) -> sa.ColumnElement[bool]:
    """Whether a row is of one of these cells."""
    return column.op("IN", is_comparison=True)(items(json.dumps(sorted(set(names)))))


def has_status(*statuses: Status) -> sa.ColumnElement[bool]:
    """Whether a cell has one of these statuses."""
    return outcome.c.status.in_([status.value for status in statuses])


def check_token(connection: sa.Connection, held: Lease) -> None:
    """Raise unless the lease is still held; keeps it so until the end of the transaction."""
    key = {f"of_{name}": value for name, value in held.work._asdict().items()}
    current = connection.execute(_TOKEN, key).scalar()
    if current != held.token:
        raise LeaseLost(
            f"{held.model} is no longer leased to {held.owner}; its late result was refused",
            hint="another worker took the model over",
        )


def hand_back(connection: sa.Connection, key: Work) -> None:
    """Plan again what a holder leaves half done."""
    half_done = of_work(outcome, key) & is_unfinished(connection, key.sweep_id)
    plan_again(connection, key.sweep_id, half_done, kind=Kind.HANDED_BACK)


def settle_work(connection: sa.Connection, sweep_id: int) -> None:
    """Make work `todo` exactly where a cell is open; what is leased stays as it is."""
    still_open = is_unfinished(connection, sweep_id, *WAITING)
    has_open = sa.or_(sa.exists().where(same_work(outcome, work), still_open), _has_measurable())
    mine = work.c.sweep_id == sweep_id
    connection.execute(
        sa.update(work).where(mine, work.c.state == "todo", ~has_open).values(state="done")
    )
    connection.execute(
        sa.update(work)
        .where(mine, work.c.state.in_(("done", "poison")), has_open)
        .values(state="todo", lost=0, evidence=None)
    )


def open_benches(connection: sa.Connection, sweep_id: int, model: str) -> None:
    """Let what waits to be measured be leased, now that its cell is published."""
    connection.execute(_OPEN_BENCHES, {"of_sweep_id": sweep_id, "of_model": model})


def is_measurable(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether rows of `bench` and `outcome` are of a cell that is published and yet to measure."""
    wanted = bench.c.state == BenchState.WANTED.value
    return sa.and_(condition, wanted, outcome.c.cell == bench.c.cell, has_status(*FINAL))


def _has_measurable() -> sa.ColumnElement[bool]:
    of_sweep = outcome.c.sweep_id == bench.c.sweep_id
    return sa.exists().where(is_measurable(sa.and_(same_work(bench, work), of_sweep)))


def add_event(connection: sa.Connection, sweep_id: int, kind: str, **columns: Any) -> int:
    """Append one event; returns its id."""
    row = {"sweep_id": sweep_id, "kind": str(kind), **columns}
    return int(connection.execute(_ADD_EVENT, row).scalar_one())


def add_event_of(
    connection: sa.Connection, held: Lease | sa.Row[Any], kind: str, **columns: Any
) -> None:
    """Append one event of the work that is held, and of its holder."""
    own = {"model": held.model, "token": held.token, "owner": held.owner}
    add_event(connection, held.sweep_id, kind, **own, **columns)


def is_unfinished(
    connection: sa.Connection, sweep_id: int, *besides: Status
) -> sa.ColumnElement[bool]:
    """Whether an interrupted run left a cell half done; `besides`: or it has one of these."""
    found = connection.execute(sa.select(sweep.c.publish).where(sweep.c.id == sweep_id)).scalar()
    if found is None:
        raise unknown_sweep(sweep_id)
    return has_status(*besides, *unfinished(publish=bool(found)))


_TOKEN = sa.select(lease.c.token).where(bound(lease, *Work._fields))
_TOKEN = _TOKEN.with_for_update(read=True)
_ADD_EVENT = sa.insert(event).values(at=now()).returning(event.c.id)
_OPEN_BENCHES = (
    sa.update(work)
    .where(bound(work, "sweep_id", "model"), work.c.state == "done", _has_measurable())
    .values(state="todo")
)
