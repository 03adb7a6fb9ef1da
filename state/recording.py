"""Recording: every change of a cell, refused once its model has been leased to somebody else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Float, bindparam, case, func, insert, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from matrix.needs import to_text
from matrix.status import FailureClass, Status
from state import changes
from state.database import now
from state.errors import BadTransition, StateError
from state.records import Facts, Json, Kind, Lease, StageRun
from state.schema import outcome, stage_key, stage_run
from state.text import LOG_LENGTH, clean, columns_of
from state.transitions import DEFAULT_CLASS, FINAL, RUNNING, SOURCES

_IN_EVENT = ("tree", "failure", "stage", "exit_code", "message", "bytes", "seconds")
_OF_RUN = tuple(name for name in StageRun.__slots__ if name not in {"id", "at", "parts"})
_STANDING = select(outcome.c.status, outcome.c.token, outcome.c.model, outcome.c.needs).where(
    changes.bound(outcome, "sweep_id", "cell")
)
_ADD_RUNS = insert(stage_run).values(at=now())


class Recording(changes.WritingPart):
    """The part of `State` that slots write to."""

    def record(
        self,
        held: Lease | None,
        sweep_id: int,
        cell: str,
        status: Status,
        facts: Facts = Facts(),  # noqa: B008 - frozen
        stages: Sequence[StageRun] = (),
    ) -> None:
        """Give a cell a new status with what is known of it, its event and its stage runs."""
        if held is None and status in RUNNING:
            raise StateError(f"{cell} cannot be {status} without a lease")
        known = _known(status, facts)
        values: dict[str, Any] = {
            "of_sweep_id": sweep_id,
            "of_cell": cell,
            **_values(status, known),
        }
        if held is not None:
            values |= {"of_model": held.model, "of_needs": to_text(held.needs)}
            if status is not Status.PLANNED:
                values["token"] = held.token
        tries = 0

        def work(connection: Connection) -> None:
            nonlocal tries
            tries += 1
            model = connection.execute(_change(status, held is not None), values).scalar()
            if model is None:
                _refuse(connection, held, sweep_id, cell, status, again=tries > 1)
                return
            changes.add_event(
                connection,
                sweep_id,
                Kind.STATUS,
                cell=cell,
                model=model,
                status=status.value,
                token=held.token if held else None,
                owner=held.owner if held else None,
                data={name: known[name] for name in _IN_EVENT if name in known} or None,
            )
            if stages:
                self._add_stages(connection, sweep_id, model, stages)
            if status in FINAL:
                changes.open_benches(connection, sweep_id, model)

        self._attempt(work, held)

    def note(self, sweep_id: int, kind: Kind, data: Json | None = None) -> int:
        """Append an event about the sweep as a whole; returns its id."""
        return self._attempt(
            lambda connection: changes.add_event(connection, sweep_id, kind, data=data)
        )

    def _add_stages(
        self, connection: Connection, sweep_id: int, model: str, stages: Sequence[StageRun]
    ) -> None:
        parts = {run.key: run.parts for run in stages}
        connection.execute(
            self.database.insert(stage_key).on_conflict_do_nothing(),
            # In one order, so that two writers of the same keys cannot block each other.
            [{"key": key, "parts": parts[key]} for key in sorted(parts)],
        )
        # The clock may have been set back.
        fixed = {"sweep_id": sweep_id, "model": model}
        connection.execute(
            _ADD_RUNS,
            [
                {**columns_of(run, *_OF_RUN), **fixed, "seconds": max(run.seconds, 0.0)}
                for run in stages
            ],
        )


def _known(status: Status, facts: Facts) -> dict[str, Any]:
    """The columns that the facts fill; what is not known leaves what was recorded before."""
    columns = columns_of(facts, *Facts.__slots__)
    columns |= {"failure": None, "retryable": None}
    columns["log_tail"] = clean(facts.log_tail, LOG_LENGTH, tail=True)
    if facts.message is None and status is Status.SKIPPED:
        columns["message"] = "skipped on purpose"
    if status.failed:
        failure = facts.failure or DEFAULT_CLASS.get(status, FailureClass.UNKNOWN)
        columns["failure"] = failure.value
        columns["retryable"] = (
            failure.retries_itself if facts.retryable is None else facts.retryable
        )
    return {name: value for name, value in columns.items() if value is not None}


def _values(status: Status, known: dict[str, Any]) -> dict[str, Any]:
    """What `_change` is executed with, besides its key."""
    if status is Status.PLANNED:
        return {}
    values = {"failure": None, "retryable": None, **known}
    if status is Status.PUBLISHED:
        values |= {"of_tree": known.get("tree"), "listed_at": values.pop("published_at", None)}
    return values


@cache
def _change(status: Status, held: bool) -> ReturningUpdate[Any]:
    """The UPDATE for a new status, which matches no row where it must not happen."""
    columns = outcome.c
    allowed = changes.has_status(*sorted(SOURCES[status]))
    values: dict[str, Any] = {"status": status.value, "ended_at": now()}
    if status is Status.PLANNED:
        values |= changes.FORGET
    if status is Status.PUBLISHED:
        # Recorded twice with the same content (a repeated settle) it is still true.
        allowed |= changes.has_status(Status.PUBLISHED) & changes.bound(outcome, "tree")
        listed = bindparam("listed_at", type_=Float)
        values["published_at"] = func.coalesce(listed, columns.published_at, now())
    if status in RUNNING:
        was_running = changes.has_status(*RUNNING)
        again = status is Status.BUILDING
        values["started_at"] = case((was_running, columns.started_at), else_=now())
        values["attempts"] = columns.attempts + (1 if again else case((was_running, 0), else_=1))
        if status is not Status.VERIFIED:
            values["ended_at"] = None
    key = ("sweep_id", "cell", "model", "needs") if held else ("sweep_id", "cell")
    change = update(outcome).where(changes.bound(outcome, *key), allowed)
    return change.values(**values).returning(columns.model)


def _refuse(
    connection: Connection,
    held: Lease | None,
    sweep_id: int,
    cell: str,
    status: Status,
    *,
    again: bool,
) -> None:
    """Raise because nothing was changed; `again`: unless an earlier try changed it, and the
    connection broke after its commit."""
    found = connection.execute(_STANDING, {"of_sweep_id": sweep_id, "of_cell": cell}).first()
    if found is None:
        raise StateError(f"there is no cell {cell} in sweep {sweep_id}")
    if again and found.status == status and (held is None or found.token == held.token):
        return
    if held is not None and (found.model, found.needs) != (held.model, to_text(held.needs)):
        raise StateError(f"{cell} is not a cell of this lease of {held.model}")
    raise BadTransition(f"{cell} is {found.status} and cannot become {status}")
