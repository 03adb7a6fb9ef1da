"""Tuning: what is planned, and what came of each trial and session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select, update

from matrix.trials import OVER, TuningStatus
from state.changes import WritingPart
from state.database import now
from state.measuring import packed
from state.schema import trial, trial_session, tuning
from state.text import clean
from state.tunings import SessionRow, TrialRow, TuningRow


class Tuning(WritingPart):
    """The part of `State` that writes tunings. Whoever writes holds the lock of the name."""

    def plan_tunings(self, name: str, rows: Sequence[TuningRow]) -> bool:
        """Add the tunings of a name; False: there are some of that name already."""

        def work(connection: Connection) -> bool:
            if connection.execute(select(tuning.c.id).where(tuning.c.name == name)).first():
                return False
            for row in rows:
                connection.execute(
                    insert(tuning).values(created_at=now()),
                    {
                        "name": name,
                        "model": row.model,
                        "target": row.target,
                        "position": row.position,
                        "status": TuningStatus.PLANNED.value,
                        "detail": dict(row.detail),
                    },
                )
            return True

        return self.database.attempt(work)

    def keep_tuning(self, row: TuningRow) -> None:
        """Record how far a tuning has come: its status, message and detail."""
        values: dict[str, Any] = {
            "status": row.status.value,
            "message": clean(row.message),
            "detail": dict(row.detail),
            "ended_at": now() if row.status in OVER else None,
        }
        if row.status is TuningStatus.RUNNING:
            values["began_at"] = func.coalesce(tuning.c.began_at, now())
        self.database.attempt(
            lambda connection: connection.execute(
                update(tuning).where(tuning.c.id == row.id).values(values)
            )
        )

    def keep_trial(self, row: TrialRow) -> None:
        """Record a trial, or what has become of it."""
        values = {
            "position": row.position,
            "phase": row.phase.value,
            "verdict": row.verdict.value if row.verdict else None,
            "tree": row.tree,
            "detail": dict(row.detail),
        }
        self._put(trial, {"tuning_id": row.tuning_id, "key": row.key}, values)

    def keep_session(self, row: SessionRow) -> None:
        """Keep a finished session with the times of its runs."""
        key = {
            "tuning_id": row.tuning_id,
            "trial": row.trial,
            "kind": row.kind.value,
            "component": row.component,
            "number": row.number,
        }
        values = {"at": now(), "detail": dict(row.detail), "raw": packed(row.raw or {})}
        self._put(trial_session, key, values)

    def _put(self, table: Table, key: dict[str, Any], values: dict[str, Any]) -> None:
        statement = self.database.insert(table).values({**key, **values})
        statement = statement.on_conflict_do_update(index_elements=list(key), set_=values)
        self.database.attempt(lambda connection: connection.execute(statement))
