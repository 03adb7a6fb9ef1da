"""Sweeps: begin or join one, ask again for what failed, cancel, end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, exists, insert, null, or_, select, update

from matrix.globs import matches
from matrix.status import FAILED, FailureClass, Status
from state import incoming
from state.damage import sweep_columns
from state.database import Database, now
from state.errors import StateError
from state.leases import dead_here, drop_dead
from state.moves import Part, add_event, is_leased, plan_again, settle_work, shift
from state.records import CellRow, Json, Kind, ModelRow, SweepInfo
from state.schema import outcome, sweep, work
from state.transitions import FINAL, RUNNING, unfinished


class Sweeps(Part):
    """The part of `State` that knows batches."""

    def begin(
        self,
        stamp: str,
        feed: str,
        cells: Sequence[CellRow],
        models: Sequence[ModelRow],
        settings: Json,
        selection: Json,
        *,
        publish: bool = True,
    ) -> SweepInfo:
        """Create or join the sweep of a stamp on a feed, and plan what is not done.

        What dead runs left half-way or cancelled is planned again; leases they lost do not
        count as killed slots, because somebody chose to start again. Done cells stay done.
        """
        dead = dead_here(self._db)

        def work_(connection: Connection) -> SweepInfo:
            sweep_id, created = _join(self._db, connection, stamp, feed)
            # Also the lock that keeps two runs apart that begin the same sweep.
            connection.execute(
                update(sweep)
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
            drop_dead(connection, dead, count=False)
            with incoming.loaded(connection, incoming.cells, map(asdict, cells)):
                resumed = _take_up(connection, sweep_id, publish=publish)
                added = _merge(connection, sweep_id)
            _set_models(self._db, connection, sweep_id, models)
            settle_work(connection, sweep_id, publish=publish)
            data = {"cells": len(cells), "models": len(models), "added": added, "resumed": resumed}
            add_event(connection, sweep_id, Kind.BEGUN, data=data)
            return _info(connection, sweep_id, created=created)

        return self._db.attempt(work_)

    def end(self, sweep_id: int, exit_code: int) -> None:
        """The run is over; the sweep may be begun again."""
        with self._db.write() as connection:
            connection.execute(
                update(sweep)
                .where(sweep.c.id == sweep_id)
                .values(ended_at=now(), exit_code=int(exit_code))
            )
            add_event(connection, sweep_id, Kind.ENDED, data={"exit_code": int(exit_code)})

    def retry(
        self,
        sweep_id: int,
        classes: Collection[FailureClass] = (),
        patterns: Collection[str] = (),
        among: Collection[str] | None = None,
    ) -> list[str]:
        """Plan failed cells again: of these classes and matching these globs (none: all), and
        only cells `among` these, where they are given."""
        failed = [
            outcome.c.sweep_id == sweep_id,
            outcome.c.status.in_([status.value for status in sorted(FAILED)]),
        ]
        if classes:
            failed.append(outcome.c.failure.in_([kind.value for kind in classes]))
        with self._db.write() as connection:
            publish = _info(connection, sweep_id).publish
            found = connection.execute(select(outcome.c.cell).where(*failed)).scalars().all()
            rows = [
                {"cell": cell}
                for cell in found
                if (among is None or cell in among) and (not patterns or matches(cell, patterns))
            ]
            with incoming.loaded(connection, incoming.names, rows):
                named = outcome.c.cell.in_(select(incoming.names.c.cell))
                planned = plan_again(connection, sweep_id, and_(*failed, named), kind=Kind.RETRY)
            settle_work(connection, sweep_id, publish=publish)
            return planned

    def cancel_open(self, sweep_id: int) -> list[str]:
        """Cancel what is open and in nobody's hands; the next `begin` plans it again."""
        dead = dead_here(self._db)

        def work_(connection: Connection) -> list[str]:
            info = _info(connection, sweep_id)
            drop_dead(connection, dead, count=False)
            statuses = (Status.PLANNED, *unfinished(publish=info.publish))
            free = and_(outcome.c.status.in_([one.value for one in statuses]), ~is_leased)
            values = {"status": Status.CANCELLED.value, "ended_at": now()}
            return shift(connection, sweep_id, free, values)

        return self._db.attempt(work_)

    def sweeps(self) -> list[SweepInfo]:
        """Every sweep, the one begun last first."""
        with self._db.read() as connection:
            rows = connection.execute(select(sweep).order_by(sweep.c.begun_at.desc()))
            return [SweepInfo(**sweep_columns(row._asdict())) for row in rows]

    def find_sweep(self, stamp: str | None = None, feed: str | None = None) -> SweepInfo | None:
        """The sweep begun last, of a stamp and a feed where they are given."""
        query = select(sweep).order_by(sweep.c.begun_at.desc(), sweep.c.id.desc()).limit(1)
        if stamp is not None:
            query = query.where(sweep.c.stamp == stamp)
        if feed is not None:
            query = query.where(sweep.c.feed == feed)
        with self._db.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else SweepInfo(**sweep_columns(row._asdict()))


def _join(database: Database, connection: Connection, stamp: str, feed: str) -> tuple[int, bool]:
    made = connection.execute(
        database.insert(sweep)
        .values(created_at=now(), begun_at=now())
        .on_conflict_do_nothing()
        .returning(sweep.c.id),
        {"stamp": stamp, "feed": feed, "publish": True, "settings": {}, "selection": {}},
    ).first()
    sweep_id = connection.execute(
        select(sweep.c.id).where(sweep.c.stamp == stamp, sweep.c.feed == feed)
    ).scalar_one()
    return int(sweep_id), made is not None


def _info(connection: Connection, sweep_id: int, *, created: bool = False) -> SweepInfo:
    row = connection.execute(select(sweep).where(sweep.c.id == sweep_id)).first()
    if row is None:
        raise StateError(f"there is no sweep {sweep_id} in this state")
    return SweepInfo(**sweep_columns(row._asdict()), created=created)


_new = incoming.cells.c
_same_cell = _new.cell == outcome.c.cell
_renamed = or_(_new.package != outcome.c.package, _new.version != outcome.c.version)


def _take_up(connection: Connection, sweep_id: int, *, publish: bool) -> int:
    """Plan again what dead runs left half-way, and what was cancelled and is wanted now."""
    half_done = outcome.c.status.in_([status.value for status in unfinished(publish=publish)])
    cancelled = and_(
        outcome.c.status == Status.CANCELLED.value, outcome.c.cell.in_(select(_new.cell))
    )
    free = and_(or_(half_done, cancelled), ~is_leased)
    return len(plan_again(connection, sweep_id, free, kind=Kind.RESUMED))


def _merge(connection: Connection, sweep_id: int) -> int:
    """Bring the outcomes in line with the cells of the plan; returns how many are new."""
    in_sweep = outcome.c.sweep_id == sweep_id
    fixed = [status.value for status in (*sorted(FINAL), *RUNNING)]
    clash = connection.execute(
        select(outcome.c.cell, outcome.c.status, outcome.c.package, outcome.c.version)
        .where(in_sweep, _same_cell, _renamed, outcome.c.status.in_(fixed))
        .limit(1)
    ).first()
    if clash is not None:
        raise StateError(
            f"{clash.cell} is already {clash.status} in this sweep as {clash.package} "
            f"{clash.version}, but is now planned under another name",
            hint="use the settings of the first run, or another --stamp",
        )
    connection.execute(
        update(outcome)
        .where(in_sweep, _same_cell, _renamed)
        .values(package=_new.package, version=_new.version, precision=_new.precision)
    )
    known = exists(select(outcome.c.cell).where(in_sweep, _same_cell))
    skipped = _new.skip.is_not(None)
    columns: dict[str, Any] = {
        **{name: _new[name] for name in ("cell", "model", "target", "precision")},
        **{name: _new[name] for name in ("package", "version")},
        "status": case((skipped, Status.SKIPPED.value), else_=Status.PLANNED.value),
        "message": _new.skip,
        "ended_at": case((skipped, now()), else_=null()),
    }
    added = connection.execute(
        insert(outcome).from_select(
            ["sweep_id", "attempts", *columns],
            select(bindparam("s", sweep_id), bindparam("a", 0), *columns.values()).where(~known),
        ),
        execution_options={"preserve_rowcount": True},
    ).rowcount
    _merge_skips(connection, sweep_id)
    return added


def _merge_skips(connection: Connection, sweep_id: int) -> None:
    """The catalog may have learned, or forgotten, to skip a cell since the last run."""
    reason = select(_new.skip).where(_same_cell).scalar_subquery()
    status = outcome.c.status
    wanted = exists(select(_new.cell).where(_same_cell, _new.skip.is_(None)))
    plan_again(
        connection, sweep_id, and_(status == Status.SKIPPED.value, wanted), kind=Kind.RESUMED
    )
    unwanted = exists(select(_new.cell).where(_same_cell, _new.skip.is_not(None)))
    shift(
        connection,
        sweep_id,
        and_(status == Status.PLANNED.value, unwanted),
        {"status": Status.SKIPPED.value, "message": reason, "ended_at": now()},
    )


def _set_models(
    database: Database, connection: Connection, sweep_id: int, models: Sequence[ModelRow]
) -> None:
    ranked = sorted(models, key=lambda model: (-model.estimate, model.position, model.name))
    if ranked:
        new = database.insert(work)
        connection.execute(
            new.on_conflict_do_update(
                index_elements=["sweep_id", "model"],
                set_={"position": new.excluded.position, "estimate": new.excluded.estimate},
            ),
            [
                {
                    "sweep_id": sweep_id,
                    "model": model.name,
                    "state": "todo",
                    "position": rank,
                    "estimate": model.estimate,
                    "attempts": 0,
                    "lost": 0,
                }
                for rank, model in enumerate(ranked)
            ],
        )
    connection.execute(
        update(work).where(work.c.sweep_id == sweep_id, work.c.state != "poison").values(lost=0)
    )
