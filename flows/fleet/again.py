"""Going on with a sweep of a fleet: its plan is in the state, no catalog is needed."""

from __future__ import annotations

import os
from dataclasses import replace

from flows.fleet.launch import Launch
from flows.fleet.slot import state_url
from flows.fleet.ticket import last_ticket
from flows.lookup import find_sweep
from flows.settings import Settings
from matrix.errors import Exit
from state.ledger import open_state


def again_on_fleet(settings: Settings, stamp: str | None, pool: str, *, as_json: bool) -> Exit:
    """Order the last run of a sweep once more."""
    with open_state(state_url(settings)) as state:
        info = find_sweep(state, stamp)
        ticket = replace(last_ticket(state, info.id, info.stamp), newest={})
    recalled = ticket.settings({**os.environ}, settings.cwd).replaced(
        {"state": settings["state"]}, "the state it was found in"
    )
    return Launch(ticket.plan, recalled, ticket.values, pool, as_json).go()
