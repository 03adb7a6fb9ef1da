"""Seeding: the feed is the authority on what is published, so its listing comes first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matrix.status import Status
from state.changes import settle_work, shift
from state.database import Transaction
from state.records import Kind, Seeded, Seen
from state.rows import WritingPart
from state.sql import Row


class Seeding(WritingPart):
    """The part of `State` that learns from the feed."""

    def seed(self, sweep_id: int, versions: Iterable[Seen]) -> Seeded:
        """Mark the cells whose versions the feed has as published, with the feed's digests.

        Cells that a slot holds are not changed.
        """
        listed = {one.cell: one for one in versions}  # before the transaction: it may come slowly

        def learn(sql: Transaction) -> Seeded:
            rows = [
                row
                for row in sql.rows("seedable_cells", sweep_id=sweep_id)
                if row["cell"] in listed and listed[row["cell"]].version == row["version"]
            ]
            known = [row for row in rows if row["status"] == Status.PUBLISHED]
            new = [_seen(row, listed) for row in rows if row["status"] != Status.PUBLISHED]
            wrong = [
                {**_seen(row, listed), "data": {"recorded": row["tree"]}}
                for row in known
                if row["tree"] != listed[row["cell"]].tree
            ]
            for change, cells in (("seed", new), ("correct_tree", wrong)):
                shift(sql, sweep_id, change, cells, Status.PUBLISHED, kind=Kind.SEEDED)
            settle_work(sql, sweep_id)
            return Seeded(len(new), tuple(row["cell"] for row in wrong))

        return self._attempt(learn)

    def unseed(self, sweep_id: int, missing: Iterable[str], listed_at: float) -> list[str]:
        """Plan published cells again that a complete listing of the feed did not have.

        `listed_at`: `now()` from before the listing began. What was published since then could
        not be in it and is not changed, nor are cells that a slot holds.
        """
        wanted = list(missing)
        data = {"why": "the feed does not have this version"}

        def forget(sql: Transaction) -> list[str]:
            lost = sql.rows("unlisted_cells", sweep_id=sweep_id, cells=wanted, listed_at=listed_at)
            planned = shift(sql, sweep_id, "plan_again", lost, kind=Kind.UNSEEDED, data=data)
            settle_work(sql, sweep_id)
            return planned

        return self._attempt(forget)


def _seen(row: Row, listed: dict[str, Seen]) -> dict[str, Any]:
    """A cell as the feed has it."""
    one = listed[row["cell"]]
    at = one.published_at.timestamp() if one.published_at else None
    return {"cell": one.cell, "model": row["model"], "tree": one.tree, "published_at": at}
