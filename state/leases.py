"""Leases: who may build which model. Heartbeats, fencing tokens, take-over, poison."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, delete, func, or_, select, update

from machine.processes import Process, this_host
from matrix.status import FailureClass, Status
from state.database import Database, Raced, now
from state.moves import Part, add_event, hand_back, publishes, shift
from state.records import Holder, Kind, Lease, Owner, Remaining
from state.schema import lease, outcome, work
from state.text import clean
from state.transitions import WAITING, unfinished

MAX_LOST = 3
"""A model whose lease was lost this often kills its slots and is set aside as poison."""

CLOCK_JITTER = 1.0
"""A heartbeat this much in the future means that the clock was set back."""

_expired = lease.c.expires_at <= now()


class Leases(Part):
    """The part of `State` that hands out models."""

    def lease(
        self, sweep_id: int, owner: Owner, ttl: float, among: Collection[str] | None = None
    ) -> Lease | None:
        """The next model that nobody alive holds, or None. `among`: only these models."""
        dead = dead_here(self._db)
        return self._db.attempt(
            lambda connection: _next(self._db, connection, sweep_id, owner, ttl, among, dead)
        )

    def renew(self, held: Lease, ttl: float) -> bool:
        """The heartbeat. False: somebody else has the model, stop working on it."""
        with self._db.write() as connection:
            renewed = connection.execute(
                update(lease)
                .where(lease.c.model == held.model, lease.c.token == held.token)
                .values(renewed_at=now(), expires_at=now() + ttl, ttl=ttl)
            )
        return renewed.rowcount == 1

    def set_activity(self, held: Lease, cell: str | None, text: str | None) -> None:
        """Say what the holder is doing; None: nothing that needs telling."""
        with self._db.write() as connection:
            connection.execute(
                update(lease)
                .where(lease.c.model == held.model, lease.c.token == held.token)
                .values(cell=cell, activity=clean(text))
            )

    def release(self, held: Lease, *, done: bool) -> bool:
        """Give a model back: done with it, or to be taken by somebody else.

        Cells left half-way are planned again. False: it was not ours any more; nothing changed.
        """
        with self._db.write() as connection:
            ended = connection.execute(
                delete(lease).where(lease.c.model == held.model, lease.c.token == held.token)
            )
            if ended.rowcount != 1:
                return False
            publish = publishes(connection, held.sweep_id)
            hand_back(connection, held.sweep_id, held.model, publish=publish)
            _set_work(connection, held.sweep_id, held.model, state="done" if done else "todo")
            add_event(
                connection,
                held.sweep_id,
                Kind.RELEASED,
                model=held.model,
                token=held.token,
                owner=held.owner,
                data={"done": done},
            )
        return True

    def remaining(self, sweep_id: int, among: Collection[str] | None = None) -> Remaining:
        """How many models there are in each state of work."""
        query = select(work.c.state, func.count()).where(work.c.sweep_id == sweep_id)
        if among is not None:
            query = query.where(work.c.model.in_(among))
        with self._db.read() as connection:
            counts = connection.execute(query.group_by(work.c.state)).tuples().all()
        return Remaining(**dict(counts))

    def leases(self, sweep_id: int | None = None) -> list[Holder]:
        """Who holds what, in one sweep or in all."""
        columns = [lease.c[name] for name in Holder.__slots__ if name != "expired"]
        query = select(*columns, _expired.label("expired")).order_by(lease.c.taken_at)
        if sweep_id is not None:
            query = query.where(lease.c.sweep_id == sweep_id)
        with self._db.read() as connection:
            rows = connection.execute(query).all()
        return [Holder(**{**row._mapping, "expired": bool(row.expired)}) for row in rows]


def dead_here(database: Database) -> list[int]:
    """Tokens of leases whose process on this machine is gone."""
    with database.read() as connection:
        rows = connection.execute(
            select(lease.c.token, lease.c.host, lease.c.pid, lease.c.pid_started).where(
                lease.c.host == this_host()
            )
        ).all()
    holders = {row.token: Process(row.host, row.pid, row.pid_started) for row in rows}
    gone = {process for process in set(holders.values()) if process.is_dead()}
    return [token for token, process in holders.items() if process in gone]


def drop_dead(connection: Connection, tokens: Collection[int], *, count: bool) -> None:
    """Take their models from holders that are gone or silent. `count`: as killed slots."""
    # After the clock was set back a heartbeat lies in the future and would count for that long.
    # Its holder gets one more ttl by the new clock: if it lives it renews, if not it expires.
    connection.execute(
        update(lease)
        .where(lease.c.renewed_at > now() + CLOCK_JITTER)
        .values(renewed_at=now(), expires_at=now() + lease.c.ttl)
    )
    gone = connection.execute(
        delete(lease).where(or_(_expired, lease.c.token.in_(list(tokens)))).returning(*lease.c)
    ).all()
    for holder in gone:
        _lost(connection, holder, "process gone" if holder.token in tokens else "expired", count)


def _next(
    database: Database,
    connection: Connection,
    sweep_id: int,
    owner: Owner,
    ttl: float,
    among: Collection[str] | None,
    dead: Collection[int],
) -> Lease | None:
    drop_dead(connection, dead, count=True)
    query = (
        select(work.c.model, work.c.attempts)
        .outerjoin(lease, lease.c.model == work.c.model)
        .where(
            work.c.sweep_id == sweep_id,
            work.c.state.in_(("todo", "leased")),
            lease.c.model.is_(None),
        )
        .order_by(work.c.position)
        .limit(1)
        .with_for_update(of=work, skip_locked=True)
    )
    if among is not None:
        query = query.where(work.c.model.in_(among))
    found = connection.execute(query).first()
    if found is None:
        return None
    attempt = found.attempts + 1
    token = add_event(
        connection, sweep_id, Kind.LEASED, model=found.model, owner=owner.name, data={"n": attempt}
    )
    taken = connection.execute(
        database.insert(lease)
        .values(taken_at=now(), renewed_at=now(), expires_at=now() + ttl)
        .on_conflict_do_nothing()
        .returning(lease.c.model),
        {
            "model": found.model,
            "sweep_id": sweep_id,
            "token": token,
            "owner": owner.name,
            "host": owner.process.host,
            "pid": owner.process.pid,
            "pid_started": owner.process.started,
            "ttl": ttl,
        },
    )
    if taken.first() is None:
        raise Raced(f"{found.model} was leased by somebody else", hint="try again")
    _set_work(connection, sweep_id, found.model, state="leased", attempts=attempt)
    return Lease(sweep_id, found.model, token, owner.name, attempt)


def _lost(connection: Connection, holder: Row[Any], why: str, count: bool) -> None:
    publish = publishes(connection, holder.sweep_id)
    evidence = {
        "why": why,
        "owner": holder.owner,
        "host": holder.host.partition("/")[0],
        "pid": holder.pid,
        "token": holder.token,
        "taken_at": holder.taken_at,
        "last_heartbeat": holder.renewed_at,
    }
    hand_back(connection, holder.sweep_id, holder.model, publish=publish)
    add_event(
        connection,
        holder.sweep_id,
        Kind.LOST,
        model=holder.model,
        token=holder.token,
        owner=holder.owner,
        data=evidence,
    )
    lost, past = connection.execute(
        select(work.c.lost, work.c.evidence).where(
            work.c.sweep_id == holder.sweep_id, work.c.model == holder.model
        )
    ).one()
    lost += count
    kept = [*(past if isinstance(past, list) else [])[-9:], evidence]
    state = "poison" if lost >= MAX_LOST else "todo"
    _set_work(connection, holder.sweep_id, holder.model, state=state, lost=lost, evidence=kept)
    if state == "poison":
        _poison(connection, holder.sweep_id, holder.model, kept, publish=publish)


def _poison(
    connection: Connection, sweep_id: int, model: str, evidence: list[Any], *, publish: bool
) -> None:
    statuses = [status.value for status in (*WAITING, *unfinished(publish=publish))]
    shift(
        connection,
        sweep_id,
        (outcome.c.model == model) & outcome.c.status.in_(statuses),
        {
            "status": Status.BUILD_FAILED.value,
            "failure": FailureClass.CRASH.value,
            "retryable": False,
            "message": f"the process that builds this model died {MAX_LOST} times",
            "hint": "look for memory or driver trouble, then: modelmill retry --class CRASH",
            "detail": {"lost_leases": evidence},
            "ended_at": now(),
        },
    )
    add_event(connection, sweep_id, Kind.POISON, model=model, data={"lost_leases": evidence})


def _set_work(connection: Connection, sweep_id: int, model: str, **values: Any) -> None:
    connection.execute(
        update(work).where(work.c.sweep_id == sweep_id, work.c.model == model).values(**values)
    )
