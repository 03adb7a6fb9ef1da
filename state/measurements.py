"""Measurements: benchmarks and traces as they were made, and what a sweep still has to measure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, insert, null, select, update

from matrix.needs import from_text, to_text
from state import damage
from state.changes import Part, add_event, check_token, is_measurable, named, of_work
from state.damage import mapping
from state.database import now
from state.errors import StateError
from state.queries import read_outcome
from state.records import (
    Bench,
    BenchState,
    Json,
    Kind,
    Lease,
    Measurement,
    MeasurementKind,
    Outcome,
)
from state.schema import bench, measurement, outcome
from state.text import clean, stable_json

MOST_RAW = 64 * 2**20
"""Bytes of raw samples once they are unpacked; more is damage."""
MEASURED = "measured"
"""Key of the notice that tells of a benchmark in a sweep: its numbers, or why there are none."""
_TEXTS = (
    "tree", "cell", "stamp", "component", "runtime", "provider", "device", "version", "machine"
)  # fmt: skip


class Measurements(Part):
    """The part of `State` that keeps what was measured."""

    def keep(self, one: Measurement) -> int:
        """Keep a measurement that belongs to no sweep's work; returns its id."""
        return self._db.attempt(lambda connection: _insert(connection, one))

    def measured(self, held: Lease, cell: str, told: Json, new: Collection[Measurement]) -> None:
        """A leased cell has been measured: keep the measurements, and tick it off.

        `told`: what an event says of it. Nothing new: it had been measured before.
        """

        def work(connection: Connection) -> None:
            check_token(connection, held)
            for one in new:
                _insert(connection, one)
            _settle(connection, held, cell, BenchState.MEASURED, None, told)

        self._db.attempt(work)

    def unmeasurable(self, held: Lease, cell: str, message: str) -> None:
        """A leased cell could not be measured; the next run of the sweep tries again."""

        def work(connection: Connection) -> None:
            check_token(connection, held)
            why = clean(message)
            _settle(connection, held, cell, BenchState.FAILED, why, {"message": why})

        self._db.attempt(work)

    def benches(
        self,
        sweep_id: int,
        model: str | None = None,
        needs: Collection[str] | None = None,
    ) -> list[Bench]:
        """What the sweep measures (of a model, with these needs), in the order of cell ids."""
        query = select(bench).where(bench.c.sweep_id == sweep_id)
        if model is not None:
            query = query.where(bench.c.model == model)
        if needs is not None:
            query = query.where(bench.c.needs == to_text(needs))
        return [_bench(row) for row in self._db.fetch(query.order_by(bench.c.cell))]

    def to_measure(self, held: Lease) -> list[Outcome]:
        """Of the leased cells those that are published and wait to be measured."""
        query = (
            select(outcome)
            .join(
                bench, (bench.c.sweep_id == outcome.c.sweep_id) & (bench.c.cell == outcome.c.cell)
            )
            .where(is_measurable(of_work(bench, held.sweep_id, held.model, to_text(held.needs))))
        )
        return [read_outcome(row) for row in self._db.fetch(query.order_by(outcome.c.cell))]

    def measurements(
        self, trees: Collection[str] | None = None, kind: MeasurementKind | None = None
    ) -> list[Measurement]:
        """What was measured (of packages with these digests), the oldest first, without raw
        samples."""
        columns = [null().label(c.name) if c.name == "raw" else c for c in measurement.c]
        query = select(*columns).order_by(measurement.c.id)
        if kind is not None:
            query = query.where(measurement.c.kind == kind.value)
        if trees is None:
            return [_read(row) for row in self._db.fetch(query)]
        rows = [
            row
            for some in named(trees, measurement.c.tree)
            for row in self._db.fetch(query.where(some))
        ]
        return sorted(map(_read, rows), key=lambda one: one.id)

    def raw_of(self, number: int) -> Json | None:
        """The samples of a benchmark or the result of a trace; None: there are none."""
        rows = self._db.fetch(select(measurement.c.raw).where(measurement.c.id == number))
        if not rows or rows[0].raw is None:
            return None
        return _unpacked(rows[0].raw, f"the samples of measurement {number}")


def same_protocol(one: Json, other: Json) -> bool:
    """Whether two measurements were made in the same way."""
    return stable_json(one) == stable_json(other)


def _settle(
    connection: Connection,
    held: Lease,
    cell: str,
    state: BenchState,
    message: str | None,
    told: Json,
) -> None:
    mine = of_work(bench, held.sweep_id, held.model, to_text(held.needs))
    changed = connection.execute(
        update(bench).where(mine, bench.c.cell == cell).values(state=state.value, message=message)
    )
    if changed.rowcount != 1:
        raise StateError(f"{cell} is not to be measured under this lease of {held.model}")
    add_event(
        connection,
        held.sweep_id,
        Kind.NOTICE,
        cell=cell,
        model=held.model,
        token=held.token,
        owner=held.owner,
        data={MEASURED: {"state": state.value, **told}},
    )


def _insert(connection: Connection, one: Measurement) -> int:
    values: dict[str, Any] = {name: clean(getattr(one, name)) for name in _TEXTS}
    added = connection.execute(
        insert(measurement).values(at=now()).returning(measurement.c.id),
        {
            **values,
            "kind": one.kind.value,
            "emulated": one.emulated,
            "protocol": stable_json(one.protocol),
            "percentiles": dict(one.percentiles),
            "detail": dict(one.detail),
            "raw": None if one.raw is None else _packed(one.raw),
        },
    )
    return int(added.scalar_one())


def _packed(raw: Json) -> bytes:
    return zlib.compress(json.dumps(dict(raw), separators=(",", ":")).encode(), 9)


def _unpacked(packed: bytes, where: str) -> Json | None:
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(packed, MOST_RAW)
        found = json.loads(text)
    except (zlib.error, ValueError):
        found = None
    if not isinstance(found, dict):
        damage.note(where)
        return None
    return found


def _bench(row: Row[Any]) -> Bench:
    needs = tuple(sorted(from_text(row.needs)))
    return Bench(row.cell, row.model, needs, BenchState(row.state), row.message)


def _read(row: Row[Any]) -> Measurement:
    values = dict(row._mapping)
    where = f"measurement {row.id}"
    for name in ("percentiles", "detail"):
        values[name] = mapping(values[name], f"{where}: {name}") or {}
    try:
        values["protocol"] = dict(json.loads(row.protocol))
    except (ValueError, TypeError):
        damage.note(f"{where}: protocol")
        values["protocol"] = {}
    return Measurement(**{**values, "kind": MeasurementKind(row.kind)})
