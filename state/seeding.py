"""Seeding: the feed is the authority on what is published, so its listing comes first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, insert, select, update

from matrix.status import FAILED, Status
from state.changes import (
    FORGET,
    Part,
    has_status,
    is_leased,
    named,
    plan_again,
    publishes,
    settle_work,
)
from state.database import now
from state.records import Kind, Seen
from state.schema import event, outcome
from state.transitions import WAITING

_SEEDABLE = sorted({*WAITING, Status.VERIFIED, *FAILED} - {Status.CONFLICT})
"""A conflict stays: that the version exists in the feed is exactly what is wrong with it."""


class Seeding(Part):
    """The part of `State` that learns from the feed."""

    def seed(self, sweep_id: int, versions: Iterable[Seen]) -> int:
        """Mark the cells whose versions the feed has as published; returns how many were not.

        Cells that somebody holds are left to the holder.
        """
        listed = {one.cell: one for one in versions}  # before the transaction: it may come slowly

        def work(connection: Connection) -> int:
            rows = connection.execute(
                select(outcome.c.cell, outcome.c.model, outcome.c.version)
                .where(outcome.c.sweep_id == sweep_id, has_status(*_SEEDABLE), ~is_leased)
                .with_for_update()
            ).all()
            found = [
                {"of": row.cell, "model": row.model, **_published(listed[row.cell])}
                for row in rows
                if row.cell in listed and listed[row.cell].version == row.version
            ]
            if found:
                _record(connection, sweep_id, found)
            settle_work(connection, sweep_id, publish=publishes(connection, sweep_id))
            return len(found)

        return self._db.attempt(work)

    def unseed(self, sweep_id: int, missing: Iterable[str], listed_at: float) -> list[str]:
        """Plan published cells again that a complete listing of the feed did not have.

        `listed_at`: `now()` from before the listing began. What was published since then could
        not be in it and is left alone, as are cells that somebody holds.
        """
        wanted = list(missing)
        data = {"why": "the feed does not have this version"}

        def work(connection: Connection) -> list[str]:
            lost = and_(has_status(Status.PUBLISHED), outcome.c.ended_at < listed_at, ~is_leased)
            planned: list[str] = []
            for cells in named(wanted):
                planned += plan_again(
                    connection, sweep_id, and_(lost, cells), kind=Kind.UNSEEDED, data=data
                )
            settle_work(connection, sweep_id, publish=publishes(connection, sweep_id))
            return planned

        return self._db.attempt(work)


def _published(one: Seen) -> dict[str, Any]:
    return {
        "tree": one.tree,
        "published_at": one.published_at.timestamp() if one.published_at else None,
    }


def _record(connection: Connection, sweep_id: int, found: list[dict[str, Any]]) -> None:
    connection.execute(
        update(outcome)
        .where(outcome.c.sweep_id == sweep_id, outcome.c.cell == bindparam("of"))
        .values(
            {
                **FORGET,
                "status": Status.PUBLISHED.value,
                "tree": bindparam("tree"),
                "published_at": func.coalesce(bindparam("published_at"), now()),
                "ended_at": now(),
            }
        ),
        found,
    )
    status = Status.PUBLISHED.value
    connection.execute(
        insert(event).values(at=now()),
        [
            {
                "sweep_id": sweep_id,
                "cell": one["of"],
                "model": one["model"],
                "kind": Kind.SEEDED.value,
                "status": status,
            }
            for one in found
        ],
    )
