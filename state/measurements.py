"""Measurements: benchmarks and traces as they were made, and what a sweep still has to measure."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from matrix.needs import to_text
from state.changes import add_event, of_holder
from state.errors import StateError
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
from state.rows import Part, WritingPart, records
from state.text import clean, columns_of, packed, stable_json, unpacked

if TYPE_CHECKING:
    from state.database import Transaction

MEASURED = "measured"
"""Key of the notice that tells of a benchmark in a sweep: its numbers, or why there are none."""
_TO_MEASURE = """
    SELECT outcome.* FROM outcome
    JOIN bench ON bench.sweep_id = outcome.sweep_id AND bench.cell = outcome.cell
    WHERE bench.sweep_id = :sweep_id AND bench.model = :model AND bench.needs = :needs
        AND bench.state = 'wanted' AND {published}
    ORDER BY outcome.cell
"""


class Measurements(Part):
    """The part of a state that tells what was measured."""

    def benches(
        self,
        sweep_id: int,
        model: str | None = None,
        needs: Collection[str] | None = None,
    ) -> list[Bench]:
        """What the sweep measures (of a model, with these needs), in the order of cell ids."""
        text = None if needs is None else to_text(needs)
        order = "ORDER BY cell"
        return self._records(
            Bench, "bench", "cell", order, sweep_id=sweep_id, model=model, needs=text
        )

    def to_measure(self, held: Lease) -> list[Outcome]:
        """Of the leased cells those that are published and wait to be measured."""
        rows = self._rows.fetch(_TO_MEASURE, **held.work._asdict())
        return list(records(Outcome, "outcome", "cell", rows))

    def measurements(
        self, trees: Collection[str] | None = None, kind: MeasurementKind | None = None
    ) -> list[Measurement]:
        """What was measured (of packages with these digests), the oldest first, without raw
        samples."""
        names = ("NULL AS raw" if name == "raw" else name for name in Measurement.__slots__)
        columns = ", ".join(names)
        of = None if trees is None else list(trees)
        return self._records(
            Measurement, "measurement", "id", "ORDER BY id", columns, tree=of, kind=kind
        )

    def raw_of(self, number: int) -> Json | None:
        """The samples of a benchmark or the result of a trace; None: there are none."""
        rows = self._select("measurement", "raw", id=number)
        if not rows or rows[0]["raw"] is None:
            return None
        return unpacked(rows[0]["raw"], f"the samples of measurement {number}")


class Measuring(WritingPart):
    """The part of `State` that keeps what was measured."""

    def keep(self, one: Measurement) -> int:
        """Keep a measurement that belongs to no sweep's work; returns its id."""
        return self._attempt(lambda sql: _add(sql, one))

    def measured(self, held: Lease, cell: str, told: Json, new: Collection[Measurement]) -> None:
        """A leased cell has been measured: keep the measurements, and tick it off.

        `told`: what an event says of it. Nothing new: it had been measured before.
        """

        def work(sql: Transaction) -> None:
            for one in new:
                _add(sql, one)
            _settle(sql, held, cell, BenchState.MEASURED, None, told)

        self._attempt(work, held)

    def unmeasurable(self, held: Lease, cell: str, message: str) -> None:
        """A leased cell could not be measured; the next run of the sweep tries again."""
        why = clean(message)
        told = {"message": why}
        self._attempt(lambda sql: _settle(sql, held, cell, BenchState.FAILED, why, told), held)

    def measure_again(self, sweep_id: int, cells: Collection[str]) -> None:
        """Let the next run of a sweep measure these cells again."""
        self._attempt(lambda sql: sql.run("want_benches", sweep_id=sweep_id, cells=cells))


def _settle(
    sql: Transaction, held: Lease, cell: str, state: BenchState, message: str | None, told: Json
) -> None:
    given = {**held.work._asdict(), "cell": cell, "state": state, "message": message}
    if sql.run("settle_bench", **given).rowcount != 1:
        raise StateError(f"{cell} is not to be measured under this lease of {held.model}")
    data = {MEASURED: {"state": state.value, **told}}
    add_event(sql, held.sweep_id, Kind.NOTICE, **of_holder(held), cell=cell, data=data)


def _add(sql: Transaction, one: Measurement) -> int:
    names = (name for name in Measurement.__slots__ if name not in {"id", "at", "raw"})
    raw = None if one.raw is None else packed(one.raw)
    return int(sql.run("add_measurement", **columns_of(one, *names), raw=raw).scalar_one())


def same_protocol(one: Json, other: Json) -> bool:
    """Whether two measurements were made in the same way."""
    return stable_json(one) == stable_json(other)
