"""Changes of many cells at once, each with its event, and of the work that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from matrix.status import Status
from state.records import Kind, Lease, Work
from state.sql import Row

if TYPE_CHECKING:
    from state.database import Transaction

_EVENT = dict.fromkeys(("cell", "model", "status", "token", "owner", "data"))


def shift(
    sql: Transaction,
    sweep_id: int,
    change: str,
    cells: Iterable[Row],
    status: Status = Status.PLANNED,
    *,
    kind: Kind = Kind.STATUS,
    **values: Any,
) -> list[str]:
    """Make a change of every one of these cells and write the events; returns the cells.

    `values`: those of the statement; `data` goes into the events.
    """
    rows = [{**row, **values, "sweep_id": sweep_id} for row in cells]
    sql.each(change, rows)
    add_events(sql, ({**row, "kind": kind, "status": status} for row in rows))
    return [row["cell"] for row in rows]


def hand_back(sql: Transaction, key: Work) -> None:
    """Plan again what a holder leaves half done."""
    half_done = sql.rows("cells_of_work", **key._asdict(), waiting=False)
    shift(sql, key.sweep_id, "plan_again", half_done, kind=Kind.HANDED_BACK)


def settle_work(sql: Transaction, sweep_id: int) -> None:
    """Make work `todo` exactly where a cell is open; what is leased stays as it is."""
    sql.run("close_work", sweep_id=sweep_id)
    sql.run("open_work", sweep_id=sweep_id)


def add_event(sql: Transaction, sweep_id: int, kind: Kind, **columns: Any) -> int:
    """Append one event; returns its id."""
    row = {**_EVENT, "sweep_id": sweep_id, "kind": kind, **columns}
    return int(sql.run("add_event", **row).scalar_one())


def add_events(sql: Transaction, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append many."""
    sql.each("new_event", ({**_EVENT, **row} for row in rows))


def of_holder(held: Lease | Any) -> dict[str, Any]:
    """Columns of an event of the work that is held: its model, and who holds it."""
    return {"model": held.model, "token": held.token, "owner": held.owner}
