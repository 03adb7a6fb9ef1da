"""History: what stages cost before, and what their keys were made of."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from statistics import median

from sqlalchemy import func, select

from state.moves import Part
from state.records import Json, KeyRecord, StageCost
from state.schema import stage_key, stage_run


class History(Part):
    """The part of `State` that remembers over all sweeps."""

    def history(self, models: Collection[str] | None = None, *, latest: int = 5) -> list[StageCost]:
        """Medians of the latest real runs of each stage (and component) of each model."""
        columns = stage_run.c
        recent = func.row_number().over(
            partition_by=(columns.model, columns.stage, columns.component),
            order_by=columns.id.desc(),
        )
        ranked = select(stage_run, recent.label("age")).where(~columns.reused)
        if models is not None:
            ranked = ranked.where(columns.model.in_(models))
        kept = ranked.subquery()
        names = (kept.c.model, kept.c.stage, kept.c.component)
        query = select(kept).where(kept.c.age <= latest).order_by(*names)
        with self._db.read() as connection:
            rows = connection.execute(query).all()
        costs = []
        for name, group in groupby(rows, key=lambda row: (row.model, row.stage, row.component)):
            runs = list(group)
            costs.append(
                StageCost(
                    *name,
                    runs=len(runs),
                    seconds=float(median(run.seconds for run in runs)),
                    bytes=int(median(run.bytes for run in runs)),
                    peak_memory=int(median(run.peak_memory for run in runs)),
                )
            )
        return costs

    def last_key(
        self,
        model: str,
        stage: str,
        component: str = "",
        target: str | None = None,
        *,
        unlike: str | None = None,
    ) -> KeyRecord | None:
        """The last key of a stage and what it was made of; `unlike`: the last other than that."""
        columns = stage_run.c
        query = (
            select(columns.key, columns.at, columns.sweep_id, stage_key.c.parts)
            .join(stage_key, stage_key.c.key == columns.key)
            .where(columns.model == model, columns.stage == stage, columns.component == component)
            .order_by(columns.id.desc())
            .limit(1)
        )
        if target is not None:
            query = query.where(columns.target == target)
        if unlike is not None:
            query = query.where(columns.key != unlike)
        with self._db.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else KeyRecord(**row._mapping)

    def key_parts(self, sweep_id: int) -> dict[str, Json]:
        """What each key used in a sweep was made of."""
        used = select(stage_run.c.key).where(stage_run.c.sweep_id == sweep_id)
        query = select(stage_key.c.key, stage_key.c.parts).where(stage_key.c.key.in_(used))
        with self._db.read() as connection:
            return {row.key: row.parts for row in connection.execute(query)}

    def real_seconds(self, sweep_id: int) -> dict[str, float]:
        """What each key used in a sweep took when it really ran last, in whichever sweep."""
        used = select(stage_run.c.key).where(stage_run.c.sweep_id == sweep_id)
        query = (
            select(stage_run.c.key, stage_run.c.seconds)
            .where(stage_run.c.key.in_(used), ~stage_run.c.reused)
            .order_by(stage_run.c.id)
        )
        with self._db.read() as connection:
            return {row.key: row.seconds for row in connection.execute(query)}
