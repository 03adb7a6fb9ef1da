"""Seeding: the feed is the authority on what is published, so its listing comes first."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import and_, func, insert, literal, or_, select, update

from matrix.status import FAILED, Status
from state import incoming
from state.database import now
from state.moves import FORGET, Part, is_leased, plan_again, settle_work
from state.records import Seen
from state.schema import event, outcome, sweep
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
        rows = (
            {
                "cell": one.cell,
                "tree": one.tree,
                "version": one.version,
                "published_at": one.published_at.timestamp() if one.published_at else None,
            }
            for one in versions
        )
        with self._db.write() as connection, incoming.loaded(connection, incoming.seen, rows):
            wanted = and_(
                outcome.c.sweep_id == sweep_id,
                outcome.c.cell == _seen.cell,
                outcome.c.version == _seen.version,
                outcome.c.status.in_(_SEEDABLE),
                ~is_leased,
            )
            connection.execute(
                insert(event).from_select(
                    ["sweep_id", "at", "cell", "model", "kind", "status"],
                    select(
                        outcome.c.sweep_id,
                        now(),
                        outcome.c.cell,
                        outcome.c.model,
                        literal("seeded"),
                        literal(Status.PUBLISHED.value),
                    ).where(wanted),
                )
            )
            seeded = connection.execute(
                update(outcome)
                .where(wanted)
                .values(
                    {
                        **FORGET,
                        "status": Status.PUBLISHED.value,
                        "tree": _seen.tree,
                        "published_at": func.coalesce(_seen.published_at, now()),
                        "ended_at": now(),
                    }
                )
            ).rowcount
            settle_work(connection, sweep_id, publish=True)
        return seeded

    def unseed(self, sweep_id: int, missing: Iterable[str], listed_at: float) -> list[str]:
        """Plan published cells again that a complete listing of the feed did not have.

        `listed_at`: `now()` from before the listing began. What was published since then could
        not be in it and is left alone, as are cells of models that somebody holds.
        """
        rows = ({"cell": cell} for cell in missing)
        with self._db.write() as connection, incoming.loaded(connection, incoming.names, rows):
            gone = and_(
                outcome.c.status == Status.PUBLISHED.value,
                outcome.c.cell.in_(select(incoming.names.c.cell)),
                or_(outcome.c.ended_at.is_(None), outcome.c.ended_at < listed_at),
                ~is_leased,
            )
            data = {"why": "the feed does not have this version"}
            planned = plan_again(connection, sweep_id, gone, kind="unseeded", data=data)
            publish = connection.execute(
                select(sweep.c.publish).where(sweep.c.id == sweep_id)
            ).scalar()
            settle_work(connection, sweep_id, publish=bool(publish))
        return planned
