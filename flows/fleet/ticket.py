"""What a slot anywhere needs to know of a run: plan and settings, kept as an event of the state.

The id of that event names the run. Catalogs are files of one machine, and Prefect takes 512 KB of
parameters; the state is where everybody looks anyway. Secrets are not part of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feed.interface import Published
from flows.cli.resolution import resolve
from flows.cli.settings import OPTIONS, ORDERED, Settings
from flows.sweep.recorded_settings import remember
from flows.sweep.stop import Stop
from matrix.errors import Exit, MillError
from matrix.model import Plan
from matrix.plan_record import plan_from_record, plan_to_record
from state.damage import Tolerated
from state.records import Event, Kind

if TYPE_CHECKING:
    from state.ledger import State

FLEET = "fleet"
"""Key of the event that holds a run of a fleet."""
_ALLOWED = ("allow_remote_code", "allow_pickle")
_PATIENCE = 90
"""Seconds: on PostgreSQL an event shows only when older transactions have ended."""


class NoTicket(MillError):
    """The sweep was not started for a fleet."""

    exit_code = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Ticket:
    """A run of a sweep on a fleet."""

    sweep: int
    plan: Plan
    values: Mapping[str, Any]
    """Settings of the sweep; those of a machine come from its worker."""
    feed: str
    """As `--feed` takes it, from any folder."""
    newest: Mapping[str, Published] = field(default_factory=dict)
    run: int = 0
    """The event that holds it."""

    def settings(self, environ: Mapping[str, str], cwd: Path) -> Settings:
        """The sweep's settings on this machine. Code of strangers needs the consent of both."""
        here = resolve({}, environ, cwd)
        flags = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.values.items()
            if name in OPTIONS
        }
        for name in _ALLOWED:
            flags[name] = bool(flags.get(name)) and bool(getattr(here, name))
        return resolve({**flags, "feed": self.feed, "stamp": self.plan.stamp}, environ, cwd)


def values_of(settings: Settings, catalog: str) -> dict[str, Any]:
    """What of the settings goes with the sweep."""
    return {**settings.chosen(ORDERED), **remember(settings, catalog)}


def write_ticket(state: State, ticket: Ticket) -> int:
    """Keep it; returns the id of the run."""
    newest = {
        cell: [one.package, one.version, one.tree, one.description]
        for cell, one in ticket.newest.items()
    }
    document = {
        "plan": plan_to_record(ticket.plan),
        "values": dict(ticket.values),
        "feed": ticket.feed,
        "newest": newest,
    }
    return state.note(ticket.sweep, Kind.STARTED, {"pid": os.getpid(), FLEET: document})


def read_ticket(state: State, sweep: int, run: int, stop: Stop) -> Ticket:
    """The ticket of a run; waits until it can be seen."""
    for _second in range(_PATIENCE):
        page = state.events(sweep, run - 1, 1, kind=Kind.STARTED)
        if page and page[0].id == run:
            return _ticket(page[0])
        if stop.wait(1.0):
            break
    raise NoTicket(f"sweep {sweep} has no run {run} in the state {state.label}")


def last_ticket(state: State, sweep: int, stamp: str) -> Ticket:
    """The newest run of a sweep."""
    found = [one for one in state.events(sweep, kind=Kind.STARTED) if FLEET in (one.data or {})]
    if not found:
        raise NoTicket(
            f"sweep {stamp} was not started on a fleet", hint="leave --fleet away, or sweep --fleet"
        )
    return _ticket(found[-1])


def _ticket(event: Event) -> Ticket:
    document = (event.data or {}).get(FLEET)
    if document is None:
        raise NoTicket(f"run {event.id} of sweep {event.sweep_id} is not one of a fleet")
    with Tolerated(f"event {event.id}: {FLEET}"):
        newest = {cell: Published(*columns) for cell, columns in document["newest"].items()}
        return Ticket(
            event.sweep_id,
            plan_from_record(document["plan"]),
            dict(document["values"]),
            str(document["feed"]),
            newest,
            event.id,
        )
    raise NoTicket(
        f"run {event.id} of sweep {event.sweep_id} is damaged in the state",
        hint="order it again with modelmill sweep CATALOG --fleet",
    )
