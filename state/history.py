"""History: what stages cost in earlier runs, and what their keys were made from."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Row, func, select

from matrix.status import Status
from state.changes import Part
from state.damage import mapping
from state.records import Json, UnitCost
from state.schema import event, stage_key, stage_run, sweep

_MAPPINGS = frozenset({"tools", "inputs", "params"})


class History(Part):
    """The part of `State` that looks back over all sweeps."""

    def unit_costs(self, models: Collection[str] | None = None) -> list[UnitCost]:
        """For each stage of each cell its last key, and what that key cost when it really ran.

        Cells that share a key share the work, so sums must count each key once.
        """
        columns = stage_run.c
        newest = select(
            stage_run,
            func.row_number()
            .over(
                partition_by=(columns.cell, columns.stage, columns.component),
                order_by=columns.id.desc(),
            )
            .label("age"),
        )
        if models is not None:
            newest = newest.where(columns.model.in_(models))
        used = newest.subquery()
        real = select(columns.key, func.max(columns.id).label("id")).where(~columns.reused)
        last = real.group_by(columns.key).subquery()
        ran = stage_run.alias()
        query = (
            select(
                *(used.c[name] for name in ("model", "cell", "stage", "component", "key")),
                ran.c.seconds,
                ran.c.bytes,
                ran.c.peak_memory,
            )
            .join(last, last.c.key == used.c.key)
            .join(ran, ran.c.id == last.c.id)
            .where(used.c.age == 1)
            .order_by(used.c.id)
        )
        return [UnitCost(**row._mapping) for row in self._db.fetch(query)]

    def overheads(self, *, sweeps: int = 3) -> dict[str, float]:
        """Seconds that each cell kept its slot busy outside its stages, mostly in verification.

        From the latest sweeps in which it was verified.
        """
        recent = select(sweep.c.id).order_by(sweep.c.id.desc()).limit(sweeps)
        steps = (Status.BUILDING.value, Status.VERIFIED.value)
        moments = (
            select(event.c.sweep_id, event.c.cell, event.c.status, func.max(event.c.at).label("at"))
            .where(event.c.sweep_id.in_(recent), event.c.status.in_(steps))
            .group_by(event.c.sweep_id, event.c.cell, event.c.status)
            .order_by(event.c.sweep_id)
        )
        stages = (
            select(stage_run.c.sweep_id, stage_run.c.cell, func.sum(stage_run.c.seconds).label("s"))
            .where(stage_run.c.sweep_id.in_(recent))
            .group_by(stage_run.c.sweep_id, stage_run.c.cell)
        )
        at = {(row[0], row[1], row[2]): row[3] for row in self._db.fetch(moments)}
        spent = {(row[0], row[1]): row[2] for row in self._db.fetch(stages)}
        found: dict[str, float] = {}
        for (number, cell, status), moment in at.items():
            began = at.get((number, cell, steps[0]))
            if status == steps[1] and began is not None:
                found[cell] = max(0.0, moment - began - spent.get((number, cell), 0.0))
        return found

    def key_parts(self, sweep_id: int) -> dict[str, Json]:
        """What each key used in a sweep was made from."""
        used = select(stage_run.c.key).where(stage_run.c.sweep_id == sweep_id)
        query = select(stage_key.c.key, stage_key.c.parts).where(stage_key.c.key.in_(used))
        return {row.key: _parts(row) for row in self._db.fetch(query)}

    def real_seconds(self, sweep_id: int) -> dict[str, float]:
        """The seconds that each key used in a sweep took when it last really ran, in any sweep."""
        used = select(stage_run.c.key).where(stage_run.c.sweep_id == sweep_id)
        query = (
            select(stage_run.c.key, stage_run.c.seconds)
            .where(stage_run.c.key.in_(used), ~stage_run.c.reused)
            .order_by(stage_run.c.id)
        )
        return {row.key: row.seconds for row in self._db.fetch(query)}


def _parts(row: Row[Any]) -> Json:
    """What a key was made from, as far as `explain` and `diff` can compare it."""
    found = mapping(row.parts, f"parts of the stage key {row.key[:12]}") or {}
    return {
        name: part
        for name, part in found.items()
        if name not in _MAPPINGS or mapping(part, f"{name} of the stage key {row.key[:12]}")
    }
