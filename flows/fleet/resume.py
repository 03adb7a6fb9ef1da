"""`resume --fleet` and `retry --fleet`: go on with a sweep whose plan is in the state.

A sweep that never ran on a fleet has no plan there; it is planned again from its catalog.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from flows.cli.settings import CHANGEABLE, OPTIONS, Settings
from flows.fleet.launch import Launch
from flows.fleet.run import NoFleetRun, last_run, state_url, values_of
from flows.sweep.planning import plan_of
from flows.sweep.recorded import recall
from flows.sweep.resume import nothing_to_retry
from flows.sweep.workspace import find_sweep
from matrix.errors import Exit, UsageError
from matrix.status import FailureClass
from state.records import SweepInfo
from state.state import State, open_state

_OF_COMMAND = ("state", "summary")
"""Settings of this command; all others belong to the sweep or to its workers."""


def resume_on_fleet(
    settings: Settings,
    stamp: str | None,
    pool: str,
    *,
    retry: tuple[FailureClass, ...] | None = None,
    as_json: bool,
) -> Exit:
    """Run a sweep again as it ran last; with `retry`, first plan its failed cells of these classes
    again (no classes: all of them; `--only` narrows it)."""
    with open_state(state_url(settings)) as state:
        info = find_sweep(state, stamp)
        narrowing = () if retry is None else ("only",)
        launch = launch_of(state, info, settings, pool, narrowing, as_json=as_json)
        launch.check()  # before anything is planned again
        if retry is not None and not state.retry(info.id, retry, settings.only):
            raise nothing_to_retry(state, info)
    return replace(launch, again=retry is None).go()


def launch_of(
    state: State,
    info: SweepInfo,
    settings: Settings,
    pool: str,
    narrowing: Sequence[str],
    *,
    as_json: bool,
) -> Launch:
    try:
        run = last_run(state, info.id, info.stamp)
    except NoFleetRun:
        recalled, catalog = recall(settings, info.stamp, info.settings)
        plan = plan_of(recalled, catalog, date.today())  # noqa: DTZ011 - the user's date
        return Launch(plan, recalled, values_of(recalled, catalog), pool, as_json)
    run = replace(run, values={**run.values, **_changes(settings, info, narrowing)})
    known = run.settings({**os.environ, **settings.variables(_OF_COMMAND)}, settings.cwd)
    return Launch(run.plan, known, run.values, pool, as_json)


def _changes(settings: Settings, info: SweepInfo, narrowing: Sequence[str]) -> dict[str, Any]:
    """What flags change; one that would change nothing is refused."""
    given = [name for name, origin in settings.origins.items() if origin.startswith("flag")]
    taken = {*CHANGEABLE, *narrowing, *_OF_COMMAND}
    lost = [OPTIONS[name].flag for name in given if name not in taken]
    if lost:
        flags = ", ".join(OPTIONS[name].flag for name in CHANGEABLE)
        raise UsageError(
            f"sweep {info.stamp} of a fleet keeps its plan: {', '.join(lost)} changes nothing",
            hint=f"what can change: {flags}; give others to the workers or begin a new sweep",
        )
    return settings.chosen(name for name in given if name in CHANGEABLE)
