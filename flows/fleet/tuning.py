"""The results of tunings on a fleet, saved in the files of the machine that follows them: champions
and new evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flows.settings.settings import Settings
from flows.tune.batch import read_tuning, rows_of
from flows.tune.conclusion import champions_file, conclude
from flows.tune.record import Recorded, recorded
from flows.tune.tunings import report_lines
from machine.waits import untold
from matrix.codec import to_json
from matrix.trials import OVER, TuningStatus
from state.state import State

CHAMPIONS, BUDGET = "champions", "budget"
"""Keys of what was asked for: the file that gets the champions, and the seconds for each model."""


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
