"""Sweeps: begin or join one, ask again for what failed, cancel, end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from machine.processes import Process
from matrix.codec import to_json
from matrix.needs import to_text
from matrix.status import FAILED, FailureClass, Status
from state import changes
from state.database import Database, now
from state.errors import StateError
from state.leases import drop_lost, holders_here
from state.queries import Queries
from state.records import BenchState, CellRow, Json, Kind, SweepInfo
from state.schema import bench, lease, outcome, sweep, work
from state.text import columns_of, stable_json
from state.transitions import FINAL, RUNNING


class Sweeps(changes.WritingPart, Queries):
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

        def work_(connection: sa.Connection) -> tuple[int, bool, int]:
            sweep_id, created = _join(self.database, connection, stamp, feed)
            # Also the lock that keeps two runs apart that begin the same sweep.
            connection.execute(
                sa.update(sweep)
                .where(sweep.c.id == sweep_id)
                .values(
                    publish=publish,
                    settings=dict(settings),
                    selection=dict(selection),
                    begun_at=now(),
                    ended_at=None,
                    exit_code=None,
                )
            )
            drop_lost(connection, here, count=False)
            resumed = _take_up(connection, sweep_id, cells)
            added = _merge(connection, sweep_id, cells)
            _merge_benches(self.database, connection, sweep_id, cells, protocol or {})
            _set_work(self.database, connection, sweep_id, models)
            changes.settle_work(connection, sweep_id)
            data = {"cells": len(cells), "models": len(models), "added": added, "resumed": resumed}
            data["process"] = to_json(Process.current())
            run = changes.add_event(connection, sweep_id, Kind.BEGUN, data=data)
            return sweep_id, created, run

        sweep_id, created, run = self._attempt(work_)
        return replace(self.sweep(sweep_id), created=created, run=run)

    def end(self, sweep_id: int, exit_code: int, seconds: float | None = None) -> None:
        """The run is over; the sweep may be begun again. `seconds`: what it took, by a clock that
        nobody sets."""
        data = {"exit_code": int(exit_code), "seconds": seconds}

        def work_(connection: sa.Connection) -> None:
            connection.execute(
                sa.update(sweep)
                .where(sweep.c.id == sweep_id)
                .values(ended_at=now(), exit_code=int(exit_code))
            )
            told = {name: value for name, value in data.items() if value is not None}
            changes.add_event(connection, sweep_id, Kind.ENDED, data=told)

        self._attempt(work_)

    def retry(
        self,
        sweep_id: int,
        classes: Collection[FailureClass] = (),
        among: Collection[str] | None = None,
    ) -> list[str]:
        """Plan failed cells again: of these classes (none: of all), and only cells `among` these,
        where they are given."""
        failed = changes.has_status(*sorted(FAILED))
        if classes:
            failed = sa.and_(failed, outcome.c.failure.in_([kind.value for kind in classes]))

        def work_(connection: sa.Connection) -> list[str]:
            found = connection.scalars(
                sa.select(outcome.c.cell).where(outcome.c.sweep_id == sweep_id, failed)
            )
            chosen = [cell for cell in found if among is None or cell in among]
            wanted = sa.and_(failed, changes.named(chosen))
            planned = changes.plan_again(connection, sweep_id, wanted, kind=Kind.RETRY)
            changes.settle_work(connection, sweep_id)
            return planned

        return self._attempt(work_)

    def cancel_open(self, sweep_id: int) -> list[str]:
        """Cancel open cells that nobody holds; the next `begin` plans them again."""
        here = holders_here(self.database)

        def work_(connection: sa.Connection) -> list[str]:
            still_open = changes.is_unfinished(connection, sweep_id, Status.PLANNED)
            drop_lost(connection, here, count=False)
            values = {"status": Status.CANCELLED.value, "ended_at": now()}
            return changes.shift(
                connection, sweep_id, sa.and_(still_open, ~changes.is_leased), values
            )

        return self._attempt(work_)


def _join(database: Database, connection: sa.Connection, stamp: str, feed: str) -> tuple[int, bool]:
    made = connection.execute(
        database.insert(sweep)
        .values(created_at=now(), begun_at=now())
        .on_conflict_do_nothing()
        .returning(sweep.c.id),
        {"stamp": stamp, "feed": feed, "publish": True, "settings": {}, "selection": {}},
    ).first()
    sweep_id = connection.execute(
        sa.select(sweep.c.id).where(sweep.c.stamp == stamp, sweep.c.feed == feed)
    ).scalar_one()
    return int(sweep_id), made is not None


def _take_up(connection: sa.Connection, sweep_id: int, cells: Sequence[CellRow]) -> int:
    """Plan again what dead runs left half done, and what was cancelled and is wanted now."""
    half_done = sa.and_(changes.is_unfinished(connection, sweep_id), ~changes.is_leased)
    wanted = changes.named([row.cell for row in cells])
    free = sa.and_(changes.has_status(Status.CANCELLED), wanted, ~changes.is_leased)
    return sum(
        len(changes.plan_again(connection, sweep_id, some, kind=Kind.RESUMED))
        for some in (half_done, free)
    )


_NAMES = ("package", "version", "precision", "needs")
_FIXED = frozenset(status.value for status in (*FINAL, *RUNNING))


def _merge(connection: sa.Connection, sweep_id: int, cells: Sequence[CellRow]) -> int:
    """Bring the outcomes in line with the cells of the plan; returns how many are new."""
    # Nobody leases cells of this sweep until the end of the transaction.
    connection.execute(sa.select(work.c.model).where(work.c.sweep_id == sweep_id).with_for_update())
    columns = (outcome.c.cell, outcome.c.status, *(outcome.c[name] for name in _NAMES))
    known = {
        row.cell: row
        for row in connection.execute(
            sa.select(*columns, changes.is_leased.label("leased"))
            .where(outcome.c.sweep_id == sweep_id)
            .with_for_update(of=outcome)
        )
    }
    changed = [
        change
        for row in cells
        if row.cell in known and (change := _changed(row, known[row.cell])) is not None
    ]
    if changed:
        connection.execute(
            sa.update(outcome)
            .where(outcome.c.sweep_id == sweep_id, outcome.c.cell == sa.bindparam("of"))
            .values({name: sa.bindparam(name) for name in _NAMES}),
            changed,
        )
    added = [row for row in cells if row.cell not in known]
    for skipped in (False, True):
        new = [_new(sweep_id, row) for row in added if (row.skip is not None) is skipped]
        if new:
            connection.execute(sa.insert(outcome).values(ended_at=now() if skipped else None), new)
    _merge_skips(connection, sweep_id, cells)
    return len(added)


def _changed(row: CellRow, known: sa.Row[Any]) -> dict[str, Any] | None:
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
    return {"of": row.cell, **dict(zip(_NAMES, planned, strict=True))}


def _new(sweep_id: int, row: CellRow) -> dict[str, Any]:
    return {
        **columns_of(row, "cell", "model", "target", "precision", "package", "version"),
        "sweep_id": sweep_id,
        "needs": to_text(row.needs),
        "status": (Status.PLANNED if row.skip is None else Status.SKIPPED).value,
        "message": row.skip,
        "attempts": 0,
    }


def _merge_benches(
    database: Database,
    connection: sa.Connection,
    sweep_id: int,
    cells: Sequence[CellRow],
    protocol: Json,
) -> None:
    """What this run measures: what failed is tried again, what is measured stays so."""
    mine = bench.c.sweep_id == sweep_id
    unmeasured = changes.named([row.cell for row in cells if not row.bench], bench.c.cell)
    connection.execute(sa.delete(bench).where(mine, unmeasured))
    wanted = [
        {
            "sweep_id": sweep_id,
            "cell": row.cell,
            "model": row.model,
            "needs": to_text(row.bench),
            "state": BenchState.WANTED.value,
            "protocol": stable_json(protocol),
        }
        for row in cells
        if row.bench
    ]
    if wanted:
        new = database.insert(bench)
        same = sa.and_(
            bench.c.state == BenchState.MEASURED.value, bench.c.protocol == new.excluded.protocol
        )
        connection.execute(
            new.on_conflict_do_update(
                index_elements=["sweep_id", "cell"],
                set_={
                    "needs": new.excluded.needs,
                    "state": sa.case((same, bench.c.state), else_=new.excluded.state),
                    "protocol": new.excluded.protocol,
                    "message": None,
                },
            ),
            wanted,
        )


def _merge_skips(connection: sa.Connection, sweep_id: int, cells: Sequence[CellRow]) -> None:
    """The catalog may have begun, or ceased, to skip a cell since the last run."""
    wanted = changes.named([row.cell for row in cells if row.skip is None])
    skipped = sa.and_(changes.has_status(Status.SKIPPED), wanted)
    changes.plan_again(connection, sweep_id, skipped, kind=Kind.RESUMED)
    reasons: dict[str, list[str]] = {}
    for row in cells:
        if row.skip is not None:
            reasons.setdefault(row.skip, []).append(row.cell)
    for reason, unwanted in reasons.items():
        values = {"status": Status.SKIPPED.value, "message": reason, "ended_at": now()}
        planned = sa.and_(changes.has_status(Status.PLANNED), changes.named(unwanted))
        changes.shift(connection, sweep_id, planned, values)


def _set_work(
    database: Database, connection: sa.Connection, sweep_id: int, models: Mapping[str, float]
) -> None:
    """The work that the outcomes make: longest model first, of a model the least needs first."""
    mine = work.c.sweep_id == sweep_id
    carried = sa.or_(
        sa.exists().where(changes.same_work(outcome, work)),
        sa.exists().where(changes.same_work(bench, work)),
    )
    held = sa.exists().where(changes.same_work(lease, work))
    connection.execute(sa.delete(work).where(mine, ~carried, ~held))
    ranked = sorted(models, key=lambda model: -models[model])
    rows: list[dict[str, Any]] = []
    for table in (outcome, bench):  # building comes before measuring, which wants a quiet machine
        groups: dict[str, list[str]] = {}
        for row in connection.execute(
            sa.select(table.c.model, table.c.needs).where(table.c.sweep_id == sweep_id).distinct()
        ):
            groups.setdefault(row.model, []).append(row.needs)
        rows += [
            {"model": model, "needs": needs, "estimate": models[model]}
            for model in ranked
            for needs in sorted(groups.get(model, ()), key=lambda text: (len(text), text))
        ]
    if rows:
        new = database.insert(work)
        fresh = {"sweep_id": sweep_id, "state": "todo", "attempts": 0, "lost": 0}
        connection.execute(
            new.on_conflict_do_update(
                index_elements=["sweep_id", "model", "needs"],
                set_={"position": new.excluded.position, "estimate": new.excluded.estimate},
            ),
            [{**fresh, **row, "position": rank} for rank, row in enumerate(rows)],
        )
    harmless = sa.and_(mine, work.c.state != "poison")
    connection.execute(sa.update(work).where(harmless).values(lost=0, evidence=None))
