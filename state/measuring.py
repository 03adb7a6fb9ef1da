"""Measuring: what came of it, and what of a sweep is measured."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection

from sqlalchemy import Connection, insert, update

from state.changes import WritingPart, add_event_of, named, of_work
from state.database import now
from state.errors import StateError
from state.measurements import MEASURED
from state.records import BenchState, Json, Kind, Lease, Measurement
from state.schema import bench, measurement
from state.text import clean, columns_of


class Measuring(WritingPart):
    """The part of `State` that keeps what was measured."""

    def keep(self, one: Measurement) -> int:
        """Keep a measurement that belongs to no sweep's work; returns its id."""
        return self._attempt(lambda connection: _insert(connection, one))

    def measured(self, held: Lease, cell: str, told: Json, new: Collection[Measurement]) -> None:
        """A leased cell has been measured: keep the measurements, and tick it off.

        `told`: what an event says of it. Nothing new: it had been measured before.
        """

        def work(connection: Connection) -> None:
            for one in new:
                _insert(connection, one)
            _settle(connection, held, cell, BenchState.MEASURED, None, told)

        self._attempt(work, held)

    def unmeasurable(self, held: Lease, cell: str, message: str) -> None:
        """A leased cell could not be measured; the next run of the sweep tries again."""

        def work(connection: Connection) -> None:
            why = clean(message)
            _settle(connection, held, cell, BenchState.FAILED, why, {"message": why})

        self._attempt(work, held)

    def measure_again(self, sweep_id: int, cells: Collection[str]) -> None:
        """Let the next run of a sweep measure these cells again."""

        def work(connection: Connection) -> None:
            mine = bench.c.sweep_id == sweep_id, named(cells, bench.c.cell)
            values = {"state": BenchState.WANTED.value, "message": None}
            connection.execute(update(bench).where(*mine).values(values))

        self._attempt(work)


def _settle(
    connection: Connection,
    held: Lease,
    cell: str,
    state: BenchState,
    message: str | None,
    told: Json,
) -> None:
    mine = of_work(bench, held.work)
    changed = connection.execute(
        update(bench).where(mine, bench.c.cell == cell).values(state=state.value, message=message)
    )
    if changed.rowcount != 1:
        raise StateError(f"{cell} is not to be measured under this lease of {held.model}")
    data = {MEASURED: {"state": state.value, **told}}
    add_event_of(connection, held, Kind.NOTICE, cell=cell, data=data)


def _insert(connection: Connection, one: Measurement) -> int:
    names = (name for name in Measurement.__slots__ if name not in {"id", "at", "raw"})
    values = {**columns_of(one, *names), "raw": None if one.raw is None else packed(one.raw)}
    added = connection.execute(
        insert(measurement).values(at=now()).returning(measurement.c.id), values
    )
    return int(added.scalar_one())


def packed(raw: Json) -> bytes:
    """JSON in as few bytes as may be."""
    return zlib.compress(json.dumps(dict(raw), separators=(",", ":")).encode(), 9)
