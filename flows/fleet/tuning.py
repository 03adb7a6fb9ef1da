"""`tune --fleet`: tunings as a sweep of their baselines, measured where the device is.

The command that follows the tunings saves their results in the files of its own machine: champions
and new evidence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flows.cli.settings import Settings
from flows.fleet.launch import Launch, check_server, launch_of
from flows.fleet.run import state_url, values_of
from flows.observe.tunings import report_lines
from flows.sweep.planning import catalog_reference
from flows.sweep.recorded import TUNING
from flows.tune.batch import Order, begin_shared, is_catalog, of_fleet, read_tuning, rows_of
from flows.tune.conclusion import champions_file, conclude
from flows.tune.record import Recorded, cell_of, recorded
from machine.waits import untold
from matrix.codec import to_json
from matrix.errors import Exit, NothingSelected, UsageError
from matrix.trials import OVER, TuningStatus
from state.state import State, open_state

CHAMPIONS, BUDGET = "champions", "budget"
"""Keys of what was asked for: the file that gets the champions, and the seconds for each model."""


def order_tunings(
    settings: Settings, order: Order, budget: float | None, pool: str, *, as_json: bool
) -> tuple[str, Exit]:
    """Plan and record tunings, have a fleet make them, follow them to the end; with their name."""
    check_server(pool)
    with open_state(state_url(settings)) as state:
        plan, ours = begin_shared(settings, state, order)
        if not state.tunings(plan.stamp):
            raise NothingSelected("the selection matches no cell to tune")
    catalog = catalog_reference(settings, order.what) if is_catalog(order.what) else order.what
    asked = {BUDGET: budget, CHAMPIONS: str(champions_file(settings).absolute())}
    values = {**values_of(ours, catalog), TUNING: asked}
    code = Launch(plan, ours, values, pool, as_json).go()
    return plan.stamp, code


def resume_tunings(
    settings: Settings, name: str, budget: float | None, pool: str, *, as_json: bool
) -> Exit:
    """Go on with the tunings of a name; those whose budget was used up have a new one."""
    check_server(pool)
    with open_state(state_url(settings)) as state:
        rows = rows_of(state, name)
        info = of_fleet(state, name)
        if info is None:
            raise UsageError(
                f"the tuning {name} was not begun on a fleet",
                hint=f"modelmill tune --resume {name}",
            )
        launch = launch_of(state, info, settings, pool, (), as_json=as_json)
        left = [cell_of(row) for row in rows if row.status is not TuningStatus.DONE]
        state.measure_again(info.id, left)
    asked = {**dict(launch.values[TUNING]), BUDGET: budget}
    return replace(launch, values={**launch.values, TUNING: asked}).go()


def conclude_tunings(
    state: State, settings: Settings, name: str, asked: Mapping[str, Any], *, as_json: bool
) -> bool:
    """Save the results of finished tunings and report all; returns whether none failed."""
    if file := asked.get(CHAMPIONS):
        settings = replace(settings, champions=str(file))
    told = untold if as_json else partial(print, flush=True)
    for row in rows_of(state, name):
        if row.status in OVER and not row.detail.get("concluded"):
            kept = read_tuning(state, row)
            conclude(settings, kept, told)
            kept.change(concluded=True)
    found = recorded(state, name)
    _tell(settings, name, found, as_json=as_json)
    return not any(one.tuning.status is TuningStatus.FAILED for one in found)


def _tell(settings: Settings, name: str, found: Sequence[Recorded], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"type": "tunings", "tunings": to_json(found)}), flush=True)
        return
    print("\n".join(report_lines(found, champions_file(settings), f"{name} --fleet")))
