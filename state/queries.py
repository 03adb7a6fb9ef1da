"""Queries: the status of cells and the events, for status, progress and reports."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import Column, Row, Select, func, null, select, text

from matrix.needs import from_text, to_text
from matrix.status import FailureClass, Status
from state.changes import Part
from state.damage import mapping
from state.database import now
from state.records import Event, Kind, Outcome, StageRun
from state.schema import event, outcome, stage_run

_PAGE = 2_000
_LONG = {"evidence", "log_tail"}

# A sequence hands ids out in order, but transactions commit in any order: a reader that has seen
# id 10 must not miss 9. So it sees nothing that is newer than the oldest transaction in flight,
# unless that one has been in flight for a minute.
_SETTLED = text(
    "(age(event.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)"
    " OR event.at < extract(epoch from clock_timestamp()) - 60)"
)


class Queries(Part):
    """The part of `State` that answers."""

    def now(self) -> float:
        """The database's clock."""
        return float(self._db.fetch(select(now()))[0][0])

    def outcomes(
        self,
        sweep_id: int,
        *,
        statuses: Collection[Status] | None = None,
        model: str | None = None,
        brief: bool = False,
    ) -> Iterator[Outcome]:
        """Outcomes in the order of cell ids. Read page by page: no transaction stays open.

        `brief`: without evidence and log, which are most of the bytes of a large sweep.
        """
        columns = [null().label(c.name) if brief and c.name in _LONG else c for c in outcome.c]
        query = select(*columns).where(outcome.c.sweep_id == sweep_id)
        if statuses is not None:
            query = query.where(outcome.c.status.in_([status.value for status in statuses]))
        if model is not None:
            query = query.where(outcome.c.model == model)
        return map(read_outcome, self._paged(query, outcome.c.cell, ""))

    def outcome(self, sweep_id: int, cell: str) -> Outcome | None:
        """The latest record of one cell."""
        query = select(outcome).where(outcome.c.sweep_id == sweep_id, outcome.c.cell == cell)
        rows = self._db.fetch(query)
        return read_outcome(rows[0]) if rows else None

    def statuses(
        self, sweep_id: int, model: str | None = None, needs: Collection[str] | None = None
    ) -> dict[str, Status]:
        """The status of every cell (of a model, with these needs) in the order of cell ids; the
        quick way through a large sweep."""
        query = select(outcome.c.cell, outcome.c.status).where(outcome.c.sweep_id == sweep_id)
        if model is not None:
            query = query.where(outcome.c.model == model)
        if needs is not None:
            query = query.where(outcome.c.needs == to_text(needs))
        rows = self._db.fetch(query.order_by(outcome.c.cell))
        return {row.cell: Status(row.status) for row in rows}

    def counts(self, sweep_id: int) -> dict[Status, int]:
        """How many cells have each status."""
        query = select(outcome.c.status, func.count().label("cells"))
        query = query.where(outcome.c.sweep_id == sweep_id).group_by(outcome.c.status)
        return {Status(row.status): row.cells for row in self._db.fetch(query)}

    def events(
        self, sweep_id: int, after: int = 0, *, cell: str | None = None, kind: Kind | None = None
    ) -> Iterator[Event]:
        """The events after an id, in their order; going on from the last one misses none.

        Read page by page: no transaction stays open.
        """
        query = self._settled(sweep_id, select(event))
        if cell is not None:
            query = query.where(event.c.cell == cell)
        if kind is not None:
            query = query.where(event.c.kind == kind.value)
        return map(_event, self._paged(query, event.c.id, after))

    def newest_event(self, sweep_id: int, kind: Kind) -> Event | None:
        """The newest event of a kind."""
        query = self._settled(sweep_id, select(event)).where(event.c.kind == kind.value)
        rows = self._db.fetch(query.order_by(event.c.id.desc()).limit(1))
        return _event(rows[0]) if rows else None

    def last_event(self, sweep_id: int) -> int:
        """The id of the newest event; reading on from it, after looking at everything else,
        misses nothing."""
        rows = self._db.fetch(self._settled(sweep_id, select(func.max(event.c.id))))
        return int(rows[0][0] or 0)

    def stage_runs(
        self, sweep_id: int, *, model: str | None = None, cell: str | None = None
    ) -> list[StageRun]:
        """Stages that ran or were reused, in the order in which they were recorded."""
        query = select(stage_run).where(stage_run.c.sweep_id == sweep_id)
        if model is not None:
            query = query.where(stage_run.c.model == model)
        if cell is not None:
            query = query.where(stage_run.c.cell == cell)
        return [StageRun(**row._mapping) for row in self._db.fetch(query.order_by(stage_run.c.id))]

    def stage_counts(self, sweep_id: int, since: float) -> tuple[int, int]:
        """How many stages ran and how many were reused from that moment on."""
        query = select(stage_run.c.reused, func.count().label("stages"))
        query = query.where(stage_run.c.sweep_id == sweep_id, stage_run.c.at >= since)
        rows = self._db.fetch(query.group_by(stage_run.c.reused))
        found = {bool(row.reused): int(row.stages) for row in rows}
        return found.get(False, 0), found.get(True, 0)

    def _paged(self, query: Select[Any], key: Column[Any], after: Any) -> Iterator[Row[Any]]:
        while True:
            rows = self._db.fetch(query.where(key > after).order_by(key).limit(_PAGE))
            yield from rows
            if len(rows) < _PAGE:
                return
            after = getattr(rows[-1], key.name)

    def _settled(self, sweep_id: int, query: Select[Any]) -> Select[Any]:
        query = query.where(event.c.sweep_id == sweep_id)
        return query if self._db.sqlite else query.where(_SETTLED)


def read_outcome(row: Row[Any]) -> Outcome:
    """An outcome from its row."""
    values = dict(row._mapping)
    values["status"] = Status(values["status"])
    values["failure"] = FailureClass(values["failure"]) if values["failure"] else None
    values["needs"] = tuple(sorted(from_text(values["needs"])))
    for name in ("evidence", "detail"):
        values[name] = mapping(values[name], f"{name} of {values['cell']}")
    return Outcome(**values)


def _event(row: Row[Any]) -> Event:
    values = dict(row._mapping)
    values["status"] = Status(values["status"]) if values["status"] else None
    values["kind"] = Kind(values["kind"])
    values["data"] = mapping(values["data"], f"event {values['id']}")
    return Event(**values)
