"""History: what stages cost in earlier runs, and what their keys were made from."""

from __future__ import annotations

from matrix.status import Status
from state.damage import mapping, number, parsed
from state.records import Json, StageRun
from state.rows import Part, records
from state.sql import Row

_RECENT = "SELECT id FROM sweep ORDER BY id DESC LIMIT 3"
"""The sweeps that overheads are taken from."""
_MAPPINGS = frozenset({"tools", "inputs", "params"})

_UNIT_COSTS = """
    WITH newest AS (
        SELECT max(id) AS id FROM stage_run GROUP BY cell, stage, component
    ), last AS (
        SELECT key, max(id) AS id FROM stage_run WHERE NOT reused GROUP BY key
    )
    SELECT ran.id, ran.at, coalesce(ran.sweep_id, 0) AS sweep_id, used.model, used.cell,
           used.target, used.component, used.stage, used.key,
           ran.reused, ran.seconds, ran.bytes, ran.peak_memory
    FROM newest JOIN stage_run AS used ON used.id = newest.id
    JOIN last ON last.key = used.key JOIN stage_run AS ran ON ran.id = last.id
    ORDER BY used.id
"""
_MOMENTS = f"""
    SELECT sweep_id, cell, status, max(at) AS at FROM event
    WHERE sweep_id IN ({_RECENT}) AND status IN {{each steps}}
    GROUP BY sweep_id, cell, status ORDER BY sweep_id
"""  # noqa: S608 - a constant
_SPENT = f"""
    SELECT sweep_id, cell, sum(seconds) AS seconds FROM stage_run
    WHERE sweep_id IN ({_RECENT}) GROUP BY sweep_id, cell
"""  # noqa: S608 - a constant
_USED = "SELECT key FROM stage_run WHERE sweep_id = :sweep_id"


class History(Part):
    """The part of a state that looks back over all sweeps."""

    def unit_costs(self) -> list[StageRun]:
        """For each stage of each cell its last key, with the run in which that key last really ran.

        Cells that share a key share the work, so sums must count each key once.
        """
        return list(records(StageRun, "stage_run", "cell", self._rows.fetch(_UNIT_COSTS)))

    def overheads(self) -> dict[str, float]:
        """Seconds that each cell kept its slot busy outside its stages, mostly in verification.

        From the latest sweeps in which it was verified.
        """
        steps = [Status.BUILDING.value, Status.VERIFIED.value]
        at = {
            (row["sweep_id"], row["cell"], row["status"]): number(row["at"], "event.at")
            for row in self._rows.fetch(_MOMENTS, steps=steps)
        }
        spent = {(row["sweep_id"], row["cell"]): row["seconds"] for row in self._rows.fetch(_SPENT)}
        found: dict[str, float] = {}
        for (sweep, cell, status), moment in at.items():
            began = at.get((sweep, cell, steps[0]))
            if status == steps[1] and began is not None:
                found[cell] = max(0.0, moment - began - spent.get((sweep, cell), 0.0))
        return found

    def key_parts(self, sweep_id: int) -> dict[str, Json]:
        """What each key used in a sweep was made from."""
        query = f"SELECT key, parts FROM stage_key WHERE key IN ({_USED})"  # noqa: S608 - a constant
        rows = self._rows.fetch(query, sweep_id=sweep_id)
        return {row["key"]: _parts(row) for row in rows}

    def real_seconds(self, sweep_id: int) -> dict[str, float]:
        """The seconds that each key used in a sweep took when it last really ran, in any sweep."""
        ran = f"SELECT key, seconds FROM stage_run WHERE key IN ({_USED}) AND NOT reused"  # noqa: S608 - a constant
        rows = self._rows.fetch(f"{ran} ORDER BY id", sweep_id=sweep_id)
        return {row["key"]: number(row["seconds"], "stage_run.seconds") for row in rows}


def _parts(row: Row) -> Json:
    """What a key was made from, as far as `explain` and `diff` can compare it."""
    where = f"parts of the stage key {row['key'][:12]}"
    found = mapping(parsed(row["parts"]), where) or {}
    return {
        name: part
        for name, part in found.items()
        if name not in _MAPPINGS or mapping(part, f"{name} of the stage key {row['key'][:12]}")
    }
