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
from typing import TYPE_CHECKING, Any, NamedTuple

from machine.processes import Process, ended_in_order, forget, this_host
from matrix.needs import Words, from_text, is_measuring, serves
from matrix.status import Status
from state import changes
from state.damage import number, parsed
from state.database import Database, Raced, Transaction
from state.records import Kind, Lease, Owner, Work
from state.rows import WritingPart, records, selected
from state.sql import Row
from state.text import clean

if TYPE_CHECKING:
    from sqlalchemy import Row as Found

MAX_LOST = 3
"""A model whose holders were seen to die this often kills its slots and is set aside as poison."""

MAX_SILENT = 10
"""So is a model when so many of its holders fell silent and never spoke again: it may take down
the whole machine, so that nobody sees a process die."""


class Leases(WritingPart):
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

        def next_one(sql: Transaction) -> Lease | None:
            drop_lost(sql, here, count=True)
            served = None if offers is None else _served(sql, sweep_id, offers)
            found = sql.run("next_work", sweep_id=sweep_id, among=among, served=served).first()
            return None if found is None else _take(sql, sweep_id, found, owner, ttl, offers)

        leased = self._attempt(next_one)
        for process in here.in_order.values():
            forget(process)
        return leased

    def renew(self, held: Lease, ttl: float) -> bool:
        """The heartbeat. False: somebody else has the lease, stop working on its cells.

        Does not wait through an outage: the heart beats again soon enough.
        """
        with self.database.write() as connection:
            sql = Transaction(connection, sqlite=self.database.sqlite)
            if sql.run("is_late", **_key(held)).first() is not None:
                sql.run("spare")  # what kept this one from being renewed kept others too
            renewed = sql.run("renew", **_key(held), ttl=ttl).rowcount == 1
            if not renewed:
                _is_alive(sql, held)
        return renewed

    def set_activity(self, held: Lease, cell: str | None, text: str | None) -> None:
        """Say what the holder is doing; None: nothing that needs telling."""
        with self.database.write() as connection:
            sql = Transaction(connection, sqlite=self.database.sqlite)
            sql.run("set_activity", **_key(held), cell=cell, activity=clean(text))

    def release(self, held: Lease, *, done: bool) -> bool:
        """Give a lease back: done with its cells, or to be taken by somebody else.

        Cells left half done are planned again. False: it was not ours any more; nothing changed.
        """

        def give_back(sql: Transaction) -> bool:
            if sql.run("give_back", **_key(held)).rowcount != 1:
                _is_alive(sql, held)
                return False
            changes.hand_back(sql, held.work)
            _set_work(sql, held.work, "done" if done else "todo")
            # A cell may have been published meanwhile.
            sql.run("open_benches", sweep_id=held.sweep_id, model=held.model)
            told = {**changes.of_holder(held), "data": {"done": done}}
            changes.add_event(sql, held.sweep_id, Kind.RELEASED, **told)
            return True

        return self._attempt(give_back)


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


def drop_lost(sql: Transaction, here: Here, *, count: bool) -> None:
    """Take their leases from holders that are gone or silent. `count`: against their models."""
    dead, running = [list(map(str, tokens)) for tokens in (here.dead, here.running)]
    sql.run("clock_set_back", running=running)
    if sql.run("one_in_time", dead=dead).first() is None:
        sql.run("spare")
    for holder in sql.run("take_lost", dead=dead, running=running).all():
        _lost(sql, holder, here, count=count)


def _key(held: Lease) -> dict[str, Any]:
    return {**held.work._asdict(), "token": held.token}


def _served(sql: Transaction, sweep_id: int, offers: Words) -> list[str]:
    """The needs of open work that a machine with these words serves."""
    found = sql.run("open_needs", sweep_id=sweep_id).scalars()
    return [text for text in found if serves(offers, from_text(text))]


def _take(
    sql: Transaction,
    sweep_id: int,
    found: Found[Any],
    owner: Owner,
    ttl: float,
    offers: Words | None,
) -> Lease:
    key = Work(sweep_id, found.model, found.needs)
    if not sql.sqlite and not is_measuring(from_text(key.needs)):
        sql.run("one_at_a_time", model=key.model)
        if sql.run("built_elsewhere", sweep_id=sweep_id, model=key.model).first() is not None:
            raise _raced(key.model)
    attempt = int(number(found.attempts, "work.attempts")) + 1
    data = {"n": attempt} if offers is None else {"n": attempt, "offers": sorted(offers)}
    told = {"model": key.model, "owner": owner.name, "data": data}
    token = changes.add_event(sql, sweep_id, Kind.LEASED, **told)
    held = Lease(
        sweep_id, key.model, tuple(sorted(from_text(key.needs))), token, owner.name, attempt
    )
    process = {name: getattr(owner.process, name) for name in ("host", "pid", "started")}
    taken = sql.run("take", **_key(held), **process, owner=owner.name, ttl=ttl)
    if taken.first() is None:
        raise _raced(key.model)
    sql.run("lease_work", **key._asdict(), attempts=attempt)
    return held


def _raced(model: str) -> Raced:
    return Raced(f"{model} was leased by somebody else", hint="try again")


def _lost(sql: Transaction, holder: Found[Any], here: Here, *, count: bool) -> None:
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
    changes.hand_back(sql, key)
    told = {**changes.of_holder(holder), "data": evidence}
    changes.add_event(sql, key.sweep_id, Kind.LOST, **told)
    if not count:
        _set_work(sql, key, "todo")
        return
    lost, past = _past(sql, key)
    lost += seen
    kept = [*past[1 - MAX_SILENT :], evidence]
    silent = sum(not one.get("seen") and not one.get("alive") for one in kept)
    sql.run("lose_work", **key._asdict(), lost=lost, evidence=kept)
    if lost >= MAX_LOST:
        _poison(sql, key, kept, _DIED, _LOOK)
    elif silent >= MAX_SILENT:
        _poison(sql, key, kept, _FELL_SILENT, _LOOK_THERE)


def _past(sql: Transaction, key: Work) -> tuple[int, list[Row]]:
    """How many holders of the work died, and the evidence of those that were lost."""
    found = sql.run("lost_work", **key._asdict()).first()
    if found is None:
        return 0, []
    past = parsed(found.evidence)
    return int(number(found.lost, "work.lost")), past if isinstance(past, list) else []


def _is_alive(sql: Transaction, held: Lease) -> None:
    """Note that a holder was only late: that it lost its lease says nothing about the model."""
    _, past = _past(sql, held.work)
    if any(one.get("token") == held.token and not one.get("alive") for one in past):
        told = [{**one, "alive": True} if one["token"] == held.token else one for one in past]
        sql.run("set_evidence", **held.work._asdict(), evidence=told)


_DIED = f"the process that {{does}} this model died {MAX_LOST} times"
_LOOK = "look for memory or driver trouble, then: modelmill retry --class CRASH"
_FELL_SILENT = f"{MAX_SILENT} processes fell silent while they {{did}} this model, for good"
_LOOK_THERE = "look whether it takes down their machines, then: modelmill retry --class CRASH"


def _poison(sql: Transaction, key: Work, evidence: list[Any], message: str, hint: str) -> None:
    _set_work(sql, key, "poison")
    data = {"lost_leases": evidence}
    builds, measures = (
        message.format(does=f"{verb}s", did=past)
        for verb, past in (("build", "built"), ("measure", "measured"))
    )
    changes.shift(
        sql,
        key.sweep_id,
        "poison",
        sql.rows("cells_of_work", **key._asdict(), waiting=True),
        Status.BUILD_FAILED,
        message=builds,
        hint=hint,
        detail=data,
    )
    sql.run("fail_benches", **key._asdict(), message=measures)
    changes.add_event(sql, key.sweep_id, Kind.POISON, model=key.model, data=data)


def _set_work(sql: Transaction, key: Work, state: str) -> None:
    sql.run("set_work", **key._asdict(), state=state)
