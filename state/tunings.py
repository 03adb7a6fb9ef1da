"""Tunings as they stand: their trials, and the sessions that were measured of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.trials import OVER, Phase, SessionKind, TuningStatus, Verdict
from state.records import Json, Lease
from state.rows import Part, WritingPart, records
from state.text import columns_of, packed, unpacked

if TYPE_CHECKING:
    from state.database import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow:
    """The tuning of one model on one target; those of one command share a name."""

    name: str
    model: str
    target: str
    detail: Json
    """A `flows.tune.record.Tuning`."""
    position: int = 0
    status: TuningStatus = TuningStatus.PLANNED
    message: str | None = None
    """Why it failed, or what there was no time for."""
    created_at: float = 0.0
    began_at: float | None = None
    ended_at: float | None = None
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial; its key is unique in its tuning."""

    tuning_id: int
    key: str
    position: int
    phase: Phase
    detail: Json
    """A `flows.tune.record.Trial`."""
    verdict: Verdict | None = None
    """None: there is none yet, or it is the baseline."""
    tree: str | None = None
    """The digest of its artifact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A finished session of a trial."""

    tuning_id: int
    trial: str
    kind: SessionKind
    component: str
    number: int
    detail: Json
    raw: Json | None = None
    """The times of every run; only if they were asked for."""
    at: float = 0.0


class Tunings(Part):
    """The part of a state that tells of tunings."""

    def tunings(self, name: str | None = None) -> list[TuningRow]:
        """All, or those of a name, in the order in which they were planned."""
        return self._records(TuningRow, "tuning", "name", "ORDER BY id", name=name)

    def trials(self, tuning_id: int) -> list[TrialRow]:
        """The trials of a tuning in their order."""
        order = "ORDER BY position, key"
        return self._records(TrialRow, "trial", "key", order, tuning_id=tuning_id)

    def sessions(
        self, tuning_id: int, trial: str | None = None, *, raw: bool = False
    ) -> list[SessionRow]:
        """The finished sessions (of a trial) in the order in which they were measured.

        `raw`: with the times of every run; sessions whose times are damaged are left out.
        """
        names = [name for name in SessionRow.__slots__ if name != "raw"]
        columns = ", ".join([*names, "raw AS packed"] if raw else names)
        order = "ORDER BY at, component, number"
        found = []
        for row in self._select("trial_session", columns, order, tuning_id=tuning_id, trial=trial):
            values = dict(row)
            if raw:
                where = f"the times of session {row['number']} of {row['trial']}"
                values["raw"] = unpacked(values.pop("packed"), where)
            found.append(values)
        return list(records(SessionRow, "trial_session", "trial", found))


class Tuning(WritingPart):
    """The part of `State` that writes tunings.

    The writer holds the lock of the name or, on a fleet, the lease of the model (`held`). Late
    results of a worker that has lost its lease are refused.
    """

    def plan_tunings(self, name: str, rows: Sequence[TuningRow]) -> bool:
        """Add the tunings of a name; False: there are some of that name already."""

        def work(sql: Transaction) -> bool:
            if sql.run("tuning_of_name", name=name).first() is not None:
                return False
            columns = ("model", "target", "position", "detail")
            sql.each("new_tuning", ({**columns_of(row, *columns), "name": name} for row in rows))
            return True

        return self._attempt(work)

    def keep_tuning(self, row: TuningRow, held: Lease | None = None) -> None:
        """Record how far a tuning has come: its status, message and detail."""
        values = columns_of(row, "id", "status", "message", "detail")
        over = row.status in OVER
        self._attempt(lambda sql: sql.run("keep_tuning", **values, over=over), held)

    def keep_trial(self, row: TrialRow, held: Lease | None = None) -> None:
        """Record a trial, or what has become of it."""
        values = columns_of(row, *TrialRow.__slots__)
        self._attempt(lambda sql: sql.run("keep_trial", **values), held)

    def keep_session(self, row: SessionRow, held: Lease | None = None) -> None:
        """Keep a finished session with the times of its runs."""
        values = columns_of(row, *SessionRow.__slots__) | {"raw": packed(row.raw or {})}
        self._attempt(lambda sql: sql.run("keep_session", **values), held)

    def forget_trials(self, tuning_id: int, held: Lease | None = None) -> int:
        """Drop the trials of a tuning with their sessions; returns how many sessions there were."""

        def work(sql: Transaction) -> int:
            dropped = sql.run("drop_sessions", tuning_id=tuning_id).rowcount
            sql.run("drop_trials", tuning_id=tuning_id)
            return dropped

        return self._attempt(work, held)
