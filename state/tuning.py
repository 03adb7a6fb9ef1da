"""Tuning: what is planned, and what came of each trial and session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from matrix.trials import OVER, TuningStatus
from state.changes import WritingPart, of_work
from state.database import now
from state.measuring import packed
from state.records import Lease, Work
from state.schema import outcome, trial, trial_session, tuning, work
from state.text import columns_of
from state.tunings import SessionRow, TrialRow, TuningRow


class Tuning(WritingPart):
    """The part of `State` that writes tunings.

    Whoever writes holds the lock of the name, or on a fleet the lease of the model (`held`): what
    comes late from a worker that has lost it is refused.
    """

    def plan_tunings(self, name: str, rows: Sequence[TuningRow]) -> bool:
        """Add the tunings of a name; False: there are some of that name already."""

        def work(connection: Connection) -> bool:
            if connection.execute(select(tuning.c.id).where(tuning.c.name == name)).first():
                return False
            for row in rows:
                connection.execute(
                    insert(tuning).values(created_at=now()),
                    {
                        **columns_of(row, "model", "target", "position", "detail"),
                        "name": name,
                        "status": TuningStatus.PLANNED.value,
                    },
                )
            return True

        return self._attempt(work)

    def keep_tuning(self, row: TuningRow, held: Lease | None = None) -> None:
        """Record how far a tuning has come: its status, message and detail."""
        values = columns_of(row, "status", "message", "detail")
        values["ended_at"] = now() if row.status in OVER else None
        if row.status is TuningStatus.RUNNING:
            values["began_at"] = func.coalesce(tuning.c.began_at, now())
        change = update(tuning).where(tuning.c.id == row.id).values(values)
        self._attempt(lambda connection: connection.execute(change), held)

    def keep_trial(self, row: TrialRow, held: Lease | None = None) -> None:
        """Record a trial, or what has become of it."""
        values = columns_of(row, "position", "phase", "verdict", "tree", "detail")
        self._put(trial, columns_of(row, "tuning_id", "key"), values, held)

    def keep_session(self, row: SessionRow, held: Lease | None = None) -> None:
        """Keep a finished session with the times of its runs."""
        key = columns_of(row, "tuning_id", "trial", "kind", "component", "number")
        values = {"at": now(), **columns_of(row, "detail"), "raw": packed(row.raw or {})}
        self._put(trial_session, key, values, held)

    def forget_trials(self, tuning_id: int, held: Lease | None = None) -> int:
        """Drop the trials of a tuning with their sessions; returns how many sessions there were."""

        def work_(connection: Connection) -> int:
            mine = trial_session.c.tuning_id == tuning_id
            dropped = connection.execute(delete(trial_session).where(mine)).rowcount
            connection.execute(delete(trial).where(trial.c.tuning_id == tuning_id))
            return dropped

        return self._attempt(work_, held)

    def offer_builds(self, held: Lease, cell: str) -> None:
        """Let any machine that can build a cell make builds for its tuning, ahead of the machine
        that measures and holds this lease."""
        self._set_builds(held, cell, "done", "todo")

    def withdraw_builds(self, held: Lease, cell: str) -> None:
        """Nobody needs to build for the tuning of a cell any more."""
        self._set_builds(held, cell, "todo", "done")

    def _set_builds(self, held: Lease, cell: str, before: str, after: str) -> None:
        def work_(connection: Connection) -> None:
            one = (outcome.c.sweep_id == held.sweep_id, outcome.c.cell == cell)
            needs = connection.execute(select(outcome.c.needs).where(*one)).scalar_one()
            mine = of_work(work, Work(held.sweep_id, held.model, needs))
            connection.execute(update(work).where(mine, work.c.state == before).values(state=after))

        self._attempt(work_, held)

    def _put(
        self, table: Table, key: dict[str, Any], values: dict[str, Any], held: Lease | None
    ) -> None:
        statement = self.database.insert(table).values({**key, **values})
        statement = statement.on_conflict_do_update(index_elements=list(key), set_=values)
        self._attempt(lambda connection: connection.execute(statement), held)
