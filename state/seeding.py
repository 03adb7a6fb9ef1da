"""Seeding: the feed is the authority on what is published, so its listing comes first."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import and_, func, select

from matrix.status import FAILED, Status
from state import incoming
from state.database import now
from state.moves import FORGET, Part, is_leased, plan_again, publishes, settle_work, shift
from state.records import Kind, Seen
from state.schema import outcome
from state.transitions import WAITING

_seen = incoming.seen.c

_SEEDABLE = [
    status.value for status in sorted({*WAITING, Status.VERIFIED, *FAILED} - {Status.CONFLICT})
]
"""A conflict stays: that the version exists in the feed is exactly what is wrong with it."""


class Seeding(Part):
    """The part of `State` that learns from the feed."""

    def seed(self, sweep_id: int, versions: Iterable[Seen]) -> int:
        """Mark the cells whose versions the feed has as published; returns how many were not.

        Cells of a model that somebody holds are left to the holder.
        """
        # All of it before the transaction: a listing may come slowly.
        rows = [
            {
                "cell": one.cell,
                "tree": one.tree,
                "version": one.version,
                "published_at": one.published_at.timestamp() if one.published_at else None,
            }
            for one in versions
        ]
        values = {
            **FORGET,
            "status": Status.PUBLISHED.value,
            "tree": _seen.tree,
            "published_at": func.coalesce(_seen.published_at, now()),
            "ended_at": now(),
        }
        with self._db.write() as connection, incoming.loaded(connection, incoming.seen, rows):
            in_feed = and_(
                outcome.c.cell == _seen.cell,
                outcome.c.version == _seen.version,
                outcome.c.status.in_(_SEEDABLE),
                ~is_leased,
            )
            seeded = shift(connection, sweep_id, in_feed, values, kind=Kind.SEEDED)
            settle_work(connection, sweep_id, publish=publishes(connection, sweep_id))
        return len(seeded)

    def unseed(self, sweep_id: int, missing: Iterable[str], listed_at: float) -> list[str]:
        """Plan published cells again that a complete listing of the feed did not have.

        `listed_at`: `now()` from before the listing began. What was published since then could
        not be in it and is left alone, as are cells of models that somebody holds.
        """
        rows = [{"cell": cell} for cell in missing]
        with self._db.write() as connection, incoming.loaded(connection, incoming.names, rows):
            gone = and_(
                outcome.c.status == Status.PUBLISHED.value,
                outcome.c.cell.in_(select(incoming.names.c.cell)),
                outcome.c.ended_at < listed_at,
                ~is_leased,
            )
            data = {"why": "the feed does not have this version"}
            planned = plan_again(connection, sweep_id, gone, kind=Kind.UNSEEDED, data=data)
            settle_work(connection, sweep_id, publish=publishes(connection, sweep_id))
        return planned
