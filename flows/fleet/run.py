"""A run of a sweep on a fleet: plan and settings, recorded as an event of the state.

The id of that event names the run. Slots read it from the state because the catalog is a file of
one machine and Prefect takes no more than 512 KB of parameters. It holds no secrets.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feed.interface import Published
from feed.rules import STRICTEST
from flows.plan.recorded import FLEET, PLAN, TUNING, remember, typed
from flows.settings.resolution import resolve
from flows.settings.settings import ORDERED, Settings
from flows.stop import Stop
from matrix.codec import from_json, to_json
from matrix.errors import MillError, UsageError
from matrix.model import Plan
from matrix.plan_json import plan_from_record, plan_to_record
from state.damage import reading
from state.records import Event, Kind

if TYPE_CHECKING:
    from state.state import State

FLAGS = " --fleet"
"""What commands in hints need besides the stamp."""
_NEED_CONSENT = ("allow_remote_code", "allow_pickle")
_VISIBLE_WITHIN = 90
"""Seconds: PostgreSQL shows an event only when older transactions have ended."""


class NoFleetRun(MillError):
    """The state has no such run of a fleet."""


@dataclass(frozen=True, slots=True)
class FleetRun:
    """A run of a sweep on a fleet."""

    sweep: int
    plan: Plan
    values: Mapping[str, Any]
    """Settings of the sweep; those of a machine come from its worker."""
    feed: str
    """As `--feed` takes it, from any folder."""
    newest: Mapping[str, Published] = field(default_factory=dict)
    """What the feed has, by cell."""
    again: Collection[str] | None = None
    """As in `flows.sweep.lifecycle.Sweep`."""
    id: int = 0
    """The event that holds it; 0: not recorded yet."""

    @property
    def tuning(self) -> Mapping[str, Any] | None:
        """The settings of a sweep that tunes its cells; None: it does not tune."""
        told = self.values.get(TUNING)
        return told if isinstance(told, Mapping) else None

    def settings(self, environ: Mapping[str, str], cwd: Path) -> Settings:
        """The sweep's settings on this machine, which has to consent to code of others."""
        here = resolve({}, environ, cwd)
        flags = {name: value for name, value in self.values.items() if name in ORDERED}
        for name in _NEED_CONSENT:
            flags[name] = bool(flags.get(name)) and bool(getattr(here, name))
        return resolve({**flags, "feed": self.feed, "stamp": self.plan.stamp}, environ, cwd)


def state_url(settings: Settings) -> str:
    """The address of a fleet's state."""
    where = str(settings.state or "")
    if "://" not in where:
        raise UsageError(
            "a fleet needs its state in PostgreSQL", hint="set --state or MODELMILL_STATE"
        )
    return where


def values_of(settings: Settings, catalog: str) -> dict[str, Any]:
    """The settings that go with a run."""
    return {**settings.chosen(ORDERED), **remember(settings, catalog)}


def record_run(state: State, run: FleetRun) -> int:
    """Record it; returns its id."""
    document = {
        "values": to_json(run.values),
        "feed": run.feed,
        "newest": to_json(run.newest),
        "again": None if run.again is None else sorted(run.again),
    }
    data = {"pid": os.getpid(), FLEET: document}
    return state.note_plan(run.sweep, Kind.STARTED, data, plan_to_record(run.plan))


def read_run(state: State, sweep: int, run: int, stop: Stop) -> FleetRun:
    """Read a run by its id; waits until it can be seen."""
    for _second in range(_VISIBLE_WITHIN):
        found = next(state.events(sweep, run - 1, kind=Kind.STARTED), None)
        if found is not None and found.id == run:
            return _from_event(state, found)
        if stop.wait(1.0):
            break
    raise NoFleetRun(f"sweep {sweep} has no run {run} in the state {state.label}")


def last_run(state: State, sweep: int, stamp: str) -> FleetRun:
    """The newest run of a sweep."""
    found = [one for one in state.events(sweep, kind=Kind.STARTED) if FLEET in (one.data or {})]
    if not found:
        raise NoFleetRun(
            f"sweep {stamp} was not started on a fleet",
            hint="leave out --fleet, or start it with modelmill sweep CATALOG --fleet",
        )
    return _from_event(state, found[-1])


def _from_event(state: State, event: Event) -> FleetRun:
    data = event.data or {}
    document = data.get(FLEET)
    if document is None:
        raise NoFleetRun(f"run {event.id} of sweep {event.sweep_id} is not one of a fleet")
    with reading(f"event {event.id}: {FLEET}"):
        values, wrong = typed(document["values"])
        if wrong:
            raise ValueError(f"values of {', '.join(wrong)}")
        newest = {cell: from_json(row, Published) for cell, row in document["newest"].items()}
        (record,) = state.plans(event.sweep_id, data[PLAN])
        plan, values = plan_from_record(record, STRICTEST), {**document["values"], **values}
        again = document.get("again", ())  # earlier orders had taken up the failed cells themselves
        if again is not None and not all(isinstance(cell, str) for cell in again):
            raise ValueError("again")
        return FleetRun(event.sweep_id, plan, values, document["feed"], newest, again, event.id)
    raise NoFleetRun(
        f"run {event.id} of sweep {event.sweep_id} is damaged in the state",
        hint="start it again with modelmill sweep CATALOG --fleet",
    )
