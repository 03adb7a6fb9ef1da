"""Leases: who builds what. Heartbeats, fencing tokens, take-over, poison.

A lease that runs out is handed over, and that is all: the database was away, the machine slept, or
two clocks differ. It counts against the model only if its holder was seen to die: the process is
gone from this machine, and left no note that it ended in order. A holder that fell silent elsewhere
and never spoke again counts too, but the limit is much higher.

Where all holders are late at once, it is not they who were away but the database, or its clock was
set: then each of them gets one more term, once.

What is leased is the cells of a model that need the same of a machine. Cells of one model that
need other machines are leased apart and may be held by other slots at the same time. Two sweeps
never build the same model at once; to measure one may take hours and keeps nobody from building it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from machine.processes import Process, ended_in_order, forget, this_host
from matrix.needs import MEASURES, Words, from_text, is_measuring, serves
from matrix.status import FailureClass, Status
from state import changes
from state.damage import number
from state.database import Database, Raced, now
from state.records import BenchState, Kind, Lease, Owner, Work
from state.rows import records, selected
from state.schema import bench, lease, outcome, work
from state.text import clean
from state.transitions import WAITING

MAX_LOST = 3
"""A model whose holders were seen to die this often kills its slots and is set aside as poison."""

MAX_SILENT = 10
"""So is a model when so many of its holders fell silent and never spoke again: it may take down
the whole machine, so that nobody sees a process die."""

CLOCK_JITTER = 1.0
"""A heartbeat this much in the future means that the clock was set back."""

_expired = lease.c.expires_at <= now()
_late = lease.c.renewed_at < now() - lease.c.ttl / 2
"""Leases are renewed four times in a term."""
UNSEEN = 30.0
"""Idle slots look for leases every second: one that ran out so many seconds ago and is still here
was looked at by nobody. The database was away, or all were."""
_spared = sa.and_(
    lease.c.expires_at > lease.c.renewed_at + 1.5 * lease.c.ttl,
    lease.c.expires_at > now() - UNSEEN,
)
"""It has had its second term, and was not renewed since."""
_SPARE = sa.update(lease).where(_late, ~_spared).values(expires_at=now() + lease.c.ttl)
"""Gives every lease that was not renewed in time one more term, once."""
_open = work.c.state.in_(("todo", "leased"))


class Leases(changes.WritingPart):
    """The part of `State` that hands out models."""

    def lease(
        self,
        sweep_id: int,
        owner: Owner,
        ttl: float,
        among: Collection[str] | None = None,
        offers: Words | None = None,
    ) -> Lease | None:
        """The next cells that no living process holds, or None.

        `among`: only of these models; `offers`: only cells whose needs these words serve.
        """
        here = holders_here(self.database)

        def work_(connection: sa.Connection) -> Lease | None:
            drop_lost(connection, here, count=True)
            found = _next(connection, sweep_id, among, offers)
            if found is None:
                return None
            return _take(self.database, connection, sweep_id, found, owner, ttl, offers)

        leased = self._attempt(work_)
        for process in here.in_order.values():
            forget(process)
        return leased

    def renew(self, held: Lease, ttl: float) -> bool:
        """The heartbeat. False: somebody else has the lease, stop working on its cells.

        Does not wait through an outage: the heart beats again soon enough.
        """
        with self.database.write() as connection:
            if connection.execute(sa.select(_late).where(_is(held))).scalar():
                connection.execute(_SPARE)  # what kept this one from being renewed kept others too
            renewed = connection.execute(
                sa.update(lease)
                .where(_is(held))
                .values(renewed_at=now(), expires_at=now() + ttl, ttl=ttl)
            )
            if renewed.rowcount != 1:
                _is_alive(connection, held)
        return renewed.rowcount == 1

    def set_activity(self, held: Lease, cell: str | None, text: str | None) -> None:
        """Say what the holder is doing; None: nothing that needs telling."""
        with self.database.write() as connection:
            connection.execute(
                sa.update(lease).where(_is(held)).values(cell=cell, activity=clean(text))
            )

    def release(self, held: Lease, *, done: bool) -> bool:
        """Give a lease back: done with its cells, or to be taken by somebody else.

        Cells left half done are planned again. False: it was not ours any more; nothing changed.
        """

        def work_(connection: sa.Connection) -> bool:
            if connection.execute(sa.delete(lease).where(_is(held))).rowcount != 1:
                _is_alive(connection, held)
                return False
            changes.hand_back(connection, held.work)
            _set_work(connection, held.work, state="done" if done else "todo")
            # A cell may have been published meanwhile.
            changes.open_benches(connection, held.sweep_id, held.model)
            changes.add_event_of(connection, held, Kind.RELEASED, data={"done": done})
            return True

        return self._attempt(work_)


class Here(NamedTuple):
    """Tokens of the leases that processes of this machine hold."""

    dead: list[int]
    """The process has ended."""
    in_order: Mapping[int, Process]
    """It has ended, though not of what it was working on."""
    running: list[int]
    """It runs, so that it renews by its own clock. Known of SQLite alone: on PostgreSQL the server
    has the one clock that counts."""


def holders_here(database: Database) -> Here:
    """What has become of the processes of this machine that hold leases."""
    columns = "token, host, pid, pid_started AS started"
    rows = database.fetch(selected("lease", {"host": this_host()}, columns), host=this_host())
    holders = {
        row["token"]: process
        for row in rows
        for process in records(Process, "lease", "token", [row])
    }
    processes = set(holders.values())
    dead = {process for process in processes if process.is_dead()}
    alive = {process for process in processes if database.sqlite and process.is_running()}
    return Here(
        [token for token, process in holders.items() if process in dead],
        {
            token: process
            for token, process in holders.items()
            if process in dead and ended_in_order(process)
        },
        [token for token, process in holders.items() if process in alive],
    )


def drop_lost(connection: sa.Connection, here: Here, *, count: bool) -> None:
    """Take their leases from holders that are gone or silent. `count`: against their models."""
    elsewhere = lease.c.token.not_in(here.running)
    # After the clock was set back a heartbeat lies in the future and would count for that long.
    # Its holder gets one more ttl by the new clock: if it lives it renews, if not it expires.
    connection.execute(
        sa.update(lease)
        .where(lease.c.renewed_at > now() + CLOCK_JITTER, elsewhere)
        .values(renewed_at=now(), expires_at=now() + lease.c.ttl)
    )
    in_time = sa.select(lease.c.token).where(~_late, lease.c.token.not_in(here.dead)).limit(1)
    if connection.execute(in_time).first() is None:
        connection.execute(_SPARE)
    silent = sa.and_(_expired, elsewhere)
    lost = connection.execute(
        sa.delete(lease).where(sa.or_(silent, lease.c.token.in_(here.dead))).returning(*lease.c)
    ).all()
    for holder in lost:
        _lost(connection, holder, here, count=count)


def _is(held: Lease) -> sa.ColumnElement[bool]:
    # Tokens are never given out twice; the rest finds the row by its key.
    return sa.and_(changes.of_work(lease, held.work), lease.c.token == held.token)


def _next(
    connection: sa.Connection, sweep_id: int, among: Collection[str] | None, offers: Words | None
) -> sa.Row[tuple[str, str, int]] | None:
    """What is handed out next: its model, needs and attempts."""
    taken = sa.exists().where(
        lease.c.model == work.c.model,
        sa.or_(
            sa.and_(
                lease.c.sweep_id != work.c.sweep_id, _builds(lease.c.needs), _builds(work.c.needs)
            ),
            sa.and_(lease.c.sweep_id == work.c.sweep_id, lease.c.needs == work.c.needs),
        ),
    )
    query = (
        sa.select(work.c.model, work.c.needs, work.c.attempts)
        .where(work.c.sweep_id == sweep_id, _open, ~taken)
        .order_by(work.c.position)
        .limit(1)
        .with_for_update(of=work, skip_locked=True)
    )
    if among is not None:
        query = query.where(work.c.model.in_(among))
    if offers is not None:
        query = query.where(work.c.needs.in_(_served(connection, sweep_id, offers)))
    return connection.execute(query).first()


def _take(
    database: Database,
    connection: sa.Connection,
    sweep_id: int,
    found: sa.Row[Any],
    owner: Owner,
    ttl: float,
    offers: Words | None,
) -> Lease:
    if not database.sqlite and not is_measuring(from_text(found.needs)):
        _exclude_other_sweeps(connection, sweep_id, found.model)
    attempt = int(number(found.attempts, "work.attempts")) + 1
    data = {"n": attempt} if offers is None else {"n": attempt, "offers": sorted(offers)}
    token = changes.add_event(
        connection, sweep_id, Kind.LEASED, model=found.model, owner=owner.name, data=data
    )
    inserted = connection.execute(
        database.insert(lease)
        .values(taken_at=now(), renewed_at=now(), expires_at=now() + ttl)
        .on_conflict_do_nothing()
        .returning(lease.c.model),
        {
            "sweep_id": sweep_id,
            "model": found.model,
            "needs": found.needs,
            "token": token,
            "owner": owner.name,
            "host": owner.process.host,
            "pid": owner.process.pid,
            "pid_started": owner.process.started,
            "ttl": ttl,
        },
    )
    if inserted.first() is None:
        raise _raced(found.model)
    key = Work(sweep_id, found.model, found.needs)
    _set_work(connection, key, state="leased", attempts=attempt)
    needs = tuple(sorted(from_text(found.needs)))
    return Lease(sweep_id, found.model, needs, token, owner.name, attempt)


def _builds(needs: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether work with these needs builds: `matrix.needs.is_measuring`, in SQL."""
    return sa.and_(*(~needs.contains(f'"{word}', autoescape=True) for word in MEASURES))


def _served(connection: sa.Connection, sweep_id: int, offers: Words) -> list[str]:
    """The needs of open work that a machine with these words serves."""
    query = sa.select(work.c.needs).where(work.c.sweep_id == sweep_id, _open).distinct()
    return [text for text in connection.scalars(query) if serves(offers, from_text(text))]


def _exclude_other_sweeps(connection: sa.Connection, sweep_id: int, model: str) -> None:
    """PostgreSQL: of two sweeps that take the same model at the same moment, one gives way."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(model, 0))))
    others = sa.select(lease.c.token).where(
        lease.c.model == model, lease.c.sweep_id != sweep_id, _builds(lease.c.needs)
    )
    if connection.execute(others).first() is not None:
        raise _raced(model)


def _raced(model: str) -> Raced:
    return Raced(f"{model} was leased by somebody else", hint="try again")


def _lost(connection: sa.Connection, holder: sa.Row[Any], here: Here, *, count: bool) -> None:
    key = Work(holder.sweep_id, holder.model, holder.needs)
    seen = holder.token in here.dead and holder.token not in here.in_order
    evidence = {
        "why": "process gone" if holder.token in here.dead else "expired",
        "seen": seen,
        "alive": holder.token in here.in_order,
        "owner": holder.owner,
        "host": holder.host.partition("/")[0],
        "pid": holder.pid,
        "token": holder.token,
        "taken_at": holder.taken_at,
        "last_heartbeat": holder.renewed_at,
    }
    changes.hand_back(connection, key)
    changes.add_event_of(connection, holder, Kind.LOST, data=evidence)
    query = sa.select(work.c.lost, work.c.evidence).where(changes.of_work(work, key))
    lost, past = connection.execute(query).one()
    if not count:
        _set_work(connection, key, state="todo")
        return
    lost = number(lost, "work.lost") + seen
    kept = [*(past if isinstance(past, list) else [])[1 - MAX_SILENT :], evidence]
    silent = sum(not one.get("seen") and not one.get("alive") for one in kept)
    _set_work(connection, key, state="todo", lost=lost, evidence=kept)
    if lost >= MAX_LOST:
        _poison(connection, key, kept, _DIED, _LOOK)
    elif silent >= MAX_SILENT:
        _poison(connection, key, kept, _FELL_SILENT, _LOOK_THERE)


def _is_alive(connection: sa.Connection, held: Lease) -> None:
    """Note that a holder was only late: that it lost its lease says nothing about the model."""
    mine = changes.of_work(work, held.work)
    past = connection.execute(sa.select(work.c.evidence).where(mine).with_for_update()).scalar()
    entries = past if isinstance(past, list) else []
    if any(one.get("token") == held.token and not one.get("alive") for one in entries):
        told = [{**one, "alive": True} if one["token"] == held.token else one for one in entries]
        connection.execute(sa.update(work).where(mine).values(evidence=told))


_DIED = f"the process that {{does}} this model died {MAX_LOST} times"
_LOOK = "look for memory or driver trouble, then: modelmill retry --class CRASH"
_FELL_SILENT = f"{MAX_SILENT} processes fell silent while they {{did}} this model, for good"
_LOOK_THERE = "look whether it takes down their machines, then: modelmill retry --class CRASH"


def _poison(
    connection: sa.Connection, key: Work, evidence: list[Any], message: str, hint: str
) -> None:
    _set_work(connection, key, state="poison")
    still_open = changes.is_unfinished(connection, key.sweep_id, *WAITING)
    changes.shift(
        connection,
        key.sweep_id,
        changes.of_work(outcome, key) & still_open,
        {
            "status": Status.BUILD_FAILED.value,
            "failure": FailureClass.CRASH.value,
            "retryable": False,
            "message": message.format(does="builds", did="built"),
            "hint": hint,
            "detail": {"lost_leases": evidence},
            "ended_at": now(),
        },
    )
    unmeasured = bench.c.state == BenchState.WANTED.value
    connection.execute(
        sa.update(bench)
        .where(changes.of_work(bench, key), unmeasured)
        .values(
            state=BenchState.FAILED.value,
            message=message.format(does="measures", did="measured"),
        )
    )
    data = {"lost_leases": evidence}
    changes.add_event(connection, key.sweep_id, Kind.POISON, model=key.model, data=data)


def _set_work(connection: sa.Connection, key: Work, **values: Any) -> None:
    connection.execute(sa.update(work).where(changes.of_work(work, key)).values(**values))
