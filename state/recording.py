"""Recording: every change of a cell, refused where the token is not the model's any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from matrix.status import FailureClass, Status
from state.database import now
from state.errors import BadTransition, LeaseLost, StateError
from state.moves import Part, add_event
from state.prepared import Prepared
from state.records import Facts, Json, Kind, Lease, StageRow
from state.schema import lease, outcome, stage_key, stage_run
from state.statements import add_key, add_run, add_told, change, stage_rows
from state.text import clean, clean_tail
from state.transitions import DEFAULT_CLASS, RUNNING

_IN_EVENT = ("tree", "failure", "stage", "exit_code", "message", "bytes", "seconds")


class Recording(Part):
    """The part of `State` that slots write to."""

    def record(
        self,
        held: Lease | None,
        sweep_id: int,
        cell: str,
        status: Status,
        facts: Facts = Facts(),  # noqa: B008 - frozen
        stages: Sequence[StageRow] = (),
    ) -> None:
        """Give a cell a new status with what is known of it, its event and its stage runs."""
        if held is None and status in RUNNING:
            raise StateError(f"{cell} cannot be {status} without a lease")
        values = _columns(status, facts)
        told = {
            "sweep_id": sweep_id,
            "cell": cell,
            "kind": Kind.STATUS.value,
            "status": status.value,
            "token": held.token if held else None,
            "owner": held.owner if held else None,
            "data": {k: values[k] for k in _IN_EVENT if values.get(k) is not None} or None,
        }
        fence = {} if held is None else {"f_model": held.model, "f_token": held.token}
        parameters = {
            "f_sweep": sweep_id,
            "f_cell": cell,
            **fence,
            **{f"v_{name}": value for name, value in values.items()},
        }
        moving = change(self._db.engine.dialect, status, held is not None)
        write = self._quickly if self._db.sqlite else self._at_once
        if not write(moving, parameters, told, stages):
            with self._db.read() as connection:
                _refuse(connection, held, sweep_id, cell, status)

    def _quickly(
        self, moving: Prepared, values: dict[str, Any], told: Json, stages: Sequence[StageRow]
    ) -> bool:
        """SQLite: three or four statements are nothing beside what SQLAlchemy makes of them."""
        dialect = self._db.engine.dialect
        with self._db.quick() as cursor:
            moved = cursor.execute(moving.text, moving.bound(values)).fetchone()
            if moved is None:
                return False
            add = add_told(dialect)
            cursor.execute(add.text, add.bound({**told, "model": moved[0]}))
            if stages:
                keys, runs = stage_rows(told["sweep_id"], moved[0], stages)
                for add, rows in ((add_key(dialect), keys), (add_run(dialect), runs)):
                    cursor.executemany(add.text, [add.bound(row) for row in rows])
        return True

    def _at_once(
        self, moving: Prepared, values: dict[str, Any], told: Json, stages: Sequence[StageRow]
    ) -> bool:
        """PostgreSQL: every statement is a way to another machine."""
        values |= {f"e_{name}": value for name, value in told.items()}
        # One statement is a transaction of its own: what reads will do for it.
        with self._db.write() if stages else self._db.read() as connection:
            moved = moving.run(connection, values).first()
            if moved is not None and stages:
                self._add_stages(connection, told["sweep_id"], moved[0], stages)
        return moved is not None

    def stage(self, held: Lease, *stages: StageRow) -> None:
        """Record stage runs that belong to no change of status."""
        with self._db.write() as connection:
            _check_token(connection, held)
            self._add_stages(connection, held.sweep_id, held.model, stages)

    def note(self, sweep_id: int, kind: Kind, data: Json | None = None) -> int:
        """Append an event about the sweep as a whole; returns its id."""
        with self._db.write() as connection:
            return add_event(connection, sweep_id, kind, data=data)

    def _add_stages(
        self, connection: Connection, sweep_id: int, model: str, stages: Sequence[StageRow]
    ) -> None:
        keys, runs = stage_rows(sweep_id, model, stages)
        # As a list of parameters each would be sent as a statement of its own.
        connection.execute(self._db.insert(stage_key).on_conflict_do_nothing().values(keys))
        connection.execute(insert(stage_run).values(at=now()), runs)


def _columns(status: Status, facts: Facts) -> dict[str, Any]:
    failed = status.failed
    failure = facts.failure or DEFAULT_CLASS.get(status, FailureClass.UNKNOWN)
    retryable = failure.retries_itself if facts.retryable is None else facts.retryable
    message = facts.message
    if message is None and status is Status.SKIPPED:
        message = "skipped on purpose"
    return {
        "tree": facts.tree,
        "failure": failure.value if failed else None,
        "stage": clean(facts.stage),
        "exit_code": facts.exit_code,
        "message": clean(message),
        "hint": clean(facts.hint),
        "log_tail": clean_tail(facts.log_tail),
        "retryable": retryable if failed else None,
        "bytes": facts.bytes,
        "seconds": facts.seconds,
        "published_at": facts.published_at.timestamp() if facts.published_at else None,
        "evidence": dict(facts.evidence) if facts.evidence is not None else None,
        "detail": dict(facts.detail) if facts.detail is not None else None,
    }


def _refuse(
    connection: Connection, held: Lease | None, sweep_id: int, cell: str, status: Status
) -> None:
    if held is not None:
        _check_token(connection, held)
    found = connection.execute(
        select(outcome.c.status, outcome.c.model).where(
            outcome.c.sweep_id == sweep_id, outcome.c.cell == cell
        )
    ).first()
    if found is None:
        raise StateError(f"there is no cell {cell} in sweep {sweep_id}")
    if held is not None and found.model != held.model:
        raise StateError(f"{cell} is not a cell of {held.model}, the model of the lease")
    raise BadTransition(f"{cell} is {found.status} and cannot become {status}")


def _check_token(connection: Connection, held: Lease) -> None:
    """Raise unless the lease is still the model's; keeps it so until the end of the transaction."""
    current = connection.execute(
        select(lease.c.token)
        .where(lease.c.model == held.model, lease.c.sweep_id == held.sweep_id)
        .with_for_update(read=True)
    ).scalar()
    if current != held.token:
        raise LeaseLost(
            f"{held.model} is no longer leased to {held.owner}; its late result was refused",
            hint="another worker took the model over",
        )
