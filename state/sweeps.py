"""Sweeps: begin or join one, ask again for what failed, cancel, end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from machine.processes import Process
from matrix.codec import to_json
from matrix.needs import to_text
from matrix.status import FailureClass, Status
from state import changes
from state.database import Transaction
from state.errors import StateError
from state.leases import drop_lost, holders_here
from state.queries import Queries
from state.records import CellRow, Json, Kind, SweepInfo
from state.rows import WritingPart
from state.sql import Row
from state.text import columns_of, stable_json
from state.transitions import FINAL, RUNNING

if TYPE_CHECKING:
    from sqlalchemy import Row as Found


class Sweeps(WritingPart, Queries):
    """The part of `State` that knows batches."""

    def begin(
        self,
        stamp: str,
        feed: str,
        cells: Sequence[CellRow],
        models: Mapping[str, float],
        settings: Json,
        selection: Json,
        *,
        publish: bool = True,
        protocol: Json | None = None,
    ) -> SweepInfo:
        """Create or join the sweep of a stamp on a feed, and plan what is not done.

        `models`: the estimated seconds of each; handed out longest first, then in this order.
        What dead runs left half done or cancelled is planned again; leases they lost do not
        count as killed slots, because somebody chose to start again. Done cells stay done, and
        what was measured by this `protocol` stays measured.
        """
        here = holders_here(self.database)

        def work(sql: Transaction) -> tuple[int, bool, int]:
            given = {"publish": publish, "settings": settings, "selection": selection}
            new = sql.run("new_sweep", stamp=stamp, feed=feed, **given).first()
            sweep_id = int(sql.run("sweep_of", stamp=stamp, feed=feed).scalar_one())
            sql.run("begin", sweep_id=sweep_id, **given)
            drop_lost(sql, here, count=False)
            resumed = _take_up(sql, sweep_id, cells)
            added = _merge(sql, sweep_id, cells)
            _merge_benches(sql, sweep_id, cells, protocol or {})
            _set_work(sql, sweep_id, models)
            changes.settle_work(sql, sweep_id)
            data = {"cells": len(cells), "models": len(models), "added": added, "resumed": resumed}
            data["process"] = to_json(Process.current())
            run = changes.add_event(sql, sweep_id, Kind.BEGUN, data=data)
            return sweep_id, new is not None, run

        sweep_id, created, run = self._attempt(work)
        return replace(self.sweep(sweep_id), created=created, run=run)

    def end(self, sweep_id: int, exit_code: int, seconds: float | None = None) -> None:
        """The run is over; the sweep may be begun again. `seconds`: what it took, by a clock that
        nobody sets."""
        data = {"exit_code": int(exit_code), "seconds": seconds}

        def work(sql: Transaction) -> None:
            sql.run("end", sweep_id=sweep_id, exit_code=int(exit_code))
            told = {name: value for name, value in data.items() if value is not None}
            changes.add_event(sql, sweep_id, Kind.ENDED, data=told)

        self._attempt(work)

    def retry(
        self,
        sweep_id: int,
        classes: Collection[FailureClass] = (),
        among: Collection[str] | None = None,
    ) -> list[str]:
        """Plan failed cells again: of these classes (none: of all), and only cells `among` these,
        where they are given."""

        self.sweep(sweep_id)

        def work(sql: Transaction) -> list[str]:
            chosen = {"classes": sorted(classes) or None, "among": among}
            failed = sql.rows("failed_cells", sweep_id=sweep_id, **chosen)
            planned = changes.shift(sql, sweep_id, "plan_again", failed, kind=Kind.RETRY)
            changes.settle_work(sql, sweep_id)
            return planned

        return self._attempt(work)

    def cancel_open(self, sweep_id: int) -> list[str]:
        """Cancel open cells that nobody holds; the next `begin` plans them again."""
        self.sweep(sweep_id)
        here = holders_here(self.database)

        def work(sql: Transaction) -> list[str]:
            drop_lost(sql, here, count=False)
            free = sql.rows("free_cells", sweep_id=sweep_id, planned=True)
            return changes.shift(sql, sweep_id, "cancel", free, Status.CANCELLED)

        return self._attempt(work)

    def newest_published(self) -> frozenset[int]:
        """The sweeps with the newest record of a published cell on their feed.

        Plans read from these how a model was named, and whether a feed that is empty now once held
        versions.
        """
        return frozenset(row["sweep_id"] for row in self._rows.fetch("{newest_published}"))

    def remove_sweep(self, sweep_id: int) -> bool:
        """Remove a sweep with its cells, events and stages. Measurements and tunings stay, and so
        does what stages cost whose results other sweeps reuse.

        False: it goes on, or a tuning of its name may go on; nothing was removed.
        """
        here = holders_here(self.database)

        def work(sql: Transaction) -> bool:
            found = sql.run("ended_sweep", sweep_id=sweep_id).first()
            if found is None:
                return False
            drop_lost(sql, here, count=False)
            if sql.run("goes_on", sweep_id=sweep_id, stamp=found.stamp).first() is not None:
                return False
            for change in _REMOVE:
                sql.run(change, sweep_id=sweep_id)
            return True

        return self._attempt(work)


_REMOVE = (
    "keep_costs",
    "drop_costs",
    "remove_benches",
    "remove_work",
    "remove_cells",
    "remove_plans",
    "remove_events",
    "remove_runs",
    "remove_sweep",
)


def _take_up(sql: Transaction, sweep_id: int, cells: Sequence[CellRow]) -> int:
    """Plan again what dead runs left half done, and what was cancelled and is wanted now."""
    half_done = sql.rows("free_cells", sweep_id=sweep_id, planned=False)
    resumed = changes.shift(sql, sweep_id, "plan_again", half_done, kind=Kind.RESUMED)
    wanted = [row.cell for row in cells]
    free = sql.rows("cancelled_cells", sweep_id=sweep_id, cells=wanted)
    return len(resumed + changes.shift(sql, sweep_id, "plan_again", free, kind=Kind.RESUMED))


_NAMES = ("package", "version", "precision", "needs")
_FIXED = frozenset(status.value for status in (*FINAL, *RUNNING))


def _merge(sql: Transaction, sweep_id: int, cells: Sequence[CellRow]) -> int:
    """Bring the outcomes in line with the cells of the plan; returns how many are new."""
    sql.run("lock_work", sweep_id=sweep_id)
    known = {row.cell: row for row in sql.run("known_cells", sweep_id=sweep_id)}
    changed = (_changed(row, known[row.cell]) for row in cells if row.cell in known)
    sql.each("change_cell", ({**row, "sweep_id": sweep_id} for row in changed if row))
    added = [row for row in cells if row.cell not in known]
    sql.each("new_cell", (_new(sweep_id, row) for row in added))
    _merge_skips(sql, sweep_id, cells)
    return len(added)


def _changed(row: CellRow, known: Found[Any]) -> dict[str, Any] | None:
    """What the plan says of a known cell now, where that differs."""
    if (row.package, row.version) != (known.package, known.version) and known.status in _FIXED:
        raise StateError(
            f"{row.cell} is already {known.status} in this sweep as {known.package} "
            f"{known.version}, but is now planned under another name",
            hint="use the settings of the first run, or another --stamp",
        )
    # A holder keeps the cells that it leased, whatever they need for the next one.
    needs = known.needs if known.leased else to_text(row.needs)
    planned = (row.package, row.version, row.precision, needs)
    if planned == tuple(getattr(known, name) for name in _NAMES):
        return None
    return {"cell": row.cell, **dict(zip(_NAMES, planned, strict=True))}


def _new(sweep_id: int, row: CellRow) -> dict[str, Any]:
    return {
        **columns_of(row, "cell", "model", "target", "precision", "package", "version"),
        "sweep_id": sweep_id,
        "needs": to_text(row.needs),
        "status": Status.PLANNED if row.skip is None else Status.SKIPPED,
        "message": row.skip,
    }


def _merge_benches(
    sql: Transaction, sweep_id: int, cells: Sequence[CellRow], protocol: Json
) -> None:
    """What this run measures."""
    unmeasured = [row.cell for row in cells if not row.bench]
    sql.run("drop_benches", sweep_id=sweep_id, cells=unmeasured)
    fixed = {"sweep_id": sweep_id, "protocol": stable_json(protocol)}
    wanted = (
        {**fixed, "cell": row.cell, "model": row.model, "needs": to_text(row.bench)}
        for row in cells
        if row.bench
    )
    sql.each("put_bench", wanted)


def _merge_skips(sql: Transaction, sweep_id: int, cells: Sequence[CellRow]) -> None:
    """The catalog may have begun, or ceased, to skip a cell since the last run."""

    def cells_with(status: Status, names: Collection[str]) -> list[Row]:
        given = {"sweep_id": sweep_id, "status": status, "cells": names}
        return sql.rows("cells_with", **given)

    skipped = cells_with(Status.SKIPPED, [row.cell for row in cells if row.skip is None])
    changes.shift(sql, sweep_id, "plan_again", skipped, kind=Kind.RESUMED)
    reasons = {row.cell: row.skip for row in cells if row.skip is not None}
    planned = [
        {**row, "message": reasons[row["cell"]]}
        for row in cells_with(Status.PLANNED, list(reasons))
    ]
    changes.shift(sql, sweep_id, "skip", planned, Status.SKIPPED)


def _set_work(sql: Transaction, sweep_id: int, models: Mapping[str, float]) -> None:
    """The work that the outcomes make: longest model first, of a model the least needs first.

    Building comes before measuring, which wants a quiet machine.
    """
    sql.run("drop_work", sweep_id=sweep_id)
    ranks = {model: rank for rank, model in enumerate(sorted(models, key=lambda one: -models[one]))}
    carried = sorted(
        (row.measures, ranks[row.model], len(row.needs), row.needs, row.model)
        for row in sql.run("carriers", sweep_id=sweep_id)
        if row.model in ranks
    )
    works = dict.fromkeys((model, needs) for *_, needs, model in carried)
    rows = (
        {"model": model, "needs": needs, "estimate": models[model], "position": position}
        for position, (model, needs) in enumerate(works)
    )
    sql.each("put_work", ({**row, "sweep_id": sweep_id} for row in rows))
    sql.run("forgive_work", sweep_id=sweep_id)
