"""Measurements: benchmarks and traces as they were made, and what a sweep still has to measure."""

from __future__ import annotations

import zlib
from collections.abc import Collection

from matrix.codec import parse_json
from matrix.needs import to_text
from state.damage import damaged
from state.records import Bench, BenchState, Json, Lease, Measurement, MeasurementKind, Outcome
from state.rows import Part, records
from state.text import stable_json
from state.transitions import FINAL

MOST_RAW = 64 * 2**20
"""Bytes of raw samples once they are unpacked; more is damage."""
MEASURED = "measured"
"""Key of the notice that tells of a benchmark in a sweep: its numbers, or why there are none."""
_TO_MEASURE = """
    SELECT outcome.* FROM outcome
    JOIN bench ON bench.sweep_id = outcome.sweep_id AND bench.cell = outcome.cell
    WHERE bench.sweep_id = :sweep_id AND bench.model = :model AND bench.needs = :needs
        AND bench.state = :state AND outcome.status IN :statuses
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
        rows = self._rows.fetch(
            _TO_MEASURE,
            sweep_id=held.sweep_id,
            model=held.model,
            needs=to_text(held.needs),
            state=BenchState.WANTED.value,
            statuses=[status.value for status in FINAL],
        )
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


def same_protocol(one: Json, other: Json) -> bool:
    """Whether two measurements were made in the same way."""
    return stable_json(one) == stable_json(other)


def unpacked(packed: bytes, where: str) -> Json:
    """JSON that was packed, within limits."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(packed, MOST_RAW)
        found = parse_json(text)
    except (zlib.error, TypeError, ValueError):  # also for text in place of bytes
        found = None
    if not isinstance(found, dict):
        raise damaged(where)
    return found
