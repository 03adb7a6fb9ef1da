"""Seeding: the feed is the authority on what is published, so its listing comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, func, insert, select, update

from matrix.status import FAILED, Status
from state.changes import FORGET, WritingPart, has_status, is_leased, named, plan_again, settle_work
from state.database import now
from state.records import Kind, Seeded, Seen
from state.schema import event, outcome
from state.transitions import WAITING

_SEEDABLE = sorted({*WAITING, Status.VERIFIED, Status.PUBLISHED, *FAILED} - {Status.CONFLICT})
"""A conflict stays: that the version exists in the feed is exactly what is wrong with it."""


_READ = ("cell", "model", "version", "status", "tree")


class Seeding(WritingPart):
    """The part of `State` that learns from the feed."""

    def seed(self, sweep_id: int, versions: Iterable[Seen]) -> Seeded:
        """Mark the cells whose versions the feed has as published, with the feed's digests.

        Cells that a slot holds are not changed.
        """
        listed = {one.cell: one for one in versions}  # before the transaction: it may come slowly

        def work(connection: Connection) -> Seeded:
            rows = connection.execute(
                select(*(outcome.c[name] for name in _READ))
                .where(outcome.c.sweep_id == sweep_id, has_status(*_SEEDABLE), ~is_leased)
                .with_for_update()
            ).all()
            there = [
                row
                for row in rows
                if row.cell in listed and listed[row.cell].version == row.version
            ]
            known = Status.PUBLISHED.value
            new = [row for row in there if row.status != known]
            wrong = [
                row for row in there if row.status == known and row.tree != listed[row.cell].tree
            ]
            for found, values in ((new, _AS_SEEDED), (wrong, {"tree": bindparam("listed")})):
                if found:
                    _record(connection, sweep_id, found, listed, values)
            settle_work(connection, sweep_id)
            return Seeded(len(new), tuple(sorted(row.cell for row in wrong)))

        return self._attempt(work)

    def unseed(self, sweep_id: int, missing: Iterable[str], listed_at: float) -> list[str]:
        """Plan published cells again that a complete listing of the feed did not have.

        `listed_at`: `now()` from before the listing began. What was published since then could
        not be in it and is not changed, nor are cells that a slot holds.
        """
        wanted = list(missing)
        data = {"why": "the feed does not have this version"}

        def work(connection: Connection) -> list[str]:
            published = and_(has_status(Status.PUBLISHED), outcome.c.ended_at < listed_at)
            lost = and_(published, named(wanted), ~is_leased)
            planned = plan_again(connection, sweep_id, lost, kind=Kind.UNSEEDED, data=data)
            settle_work(connection, sweep_id)
            return planned

        return self._attempt(work)


_AS_SEEDED: Mapping[str, Any] = {
    **FORGET,
    "status": Status.PUBLISHED.value,
    "tree": bindparam("listed"),
    "published_at": func.coalesce(bindparam("at"), now()),
    "ended_at": now(),
}


def _record(
    connection: Connection,
    sweep_id: int,
    rows: Sequence[Row[Any]],
    listed: Mapping[str, Seen],
    values: Mapping[str, Any],
) -> None:
    moments = {row.cell: listed[row.cell].published_at for row in rows}
    connection.execute(
        update(outcome)
        .where(outcome.c.sweep_id == sweep_id, outcome.c.cell == bindparam("of"))
        .values(**values),
        [
            {"of": cell, "listed": listed[cell].tree, "at": moment.timestamp() if moment else None}
            for cell, moment in moments.items()
        ],
    )
    published = Status.PUBLISHED.value
    connection.execute(
        insert(event).values(at=now()),
        [
            {
                "sweep_id": sweep_id,
                "cell": row.cell,
                "model": row.model,
                "kind": Kind.SEEDED.value,
                "status": published,
                "data": {"recorded": row.tree} if row.status == published else None,
            }
            for row in rows
        ],
    )
