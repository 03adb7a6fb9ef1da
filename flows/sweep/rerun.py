"""Running a recorded sweep again: resume and retry."""

from __future__ import annotations

from datetime import date

from flows.cli.quantity import counted
from flows.cli.settings import Settings
from flows.observe.summary import open_text, summary_of
from flows.sweep.lookup import find_sweep
from flows.sweep.planning import plan_of
from flows.sweep.recorded_settings import recall
from flows.sweep.run import Run
from flows.sweep.workspace import Workspace
from matrix.errors import Exit, NothingSelected
from matrix.status import FailureClass
from state.ledger import State
from state.records import SweepInfo


def nothing_to_retry(state: State, info: SweepInfo) -> NothingSelected:
    """Why a retry of a sweep takes up nothing, and what to do."""
    summary = summary_of(state, info)
    if summary.groups:
        failed = counted(len(summary.failures), "failed cell")
        return NothingSelected(
            f"sweep {info.stamp} has {failed}, but none of this selection",
            hint=f"see modelmill status {info.stamp} --failed",
        )
    hint = f"{open_text(summary)}: modelmill resume {info.stamp}" if summary.unfinished else ""
    return NothingSelected(
        f"no cell of sweep {info.stamp} has failed: there is nothing to retry", hint=hint
    )


def go_again(
    settings: Settings,
    stamp: str | None,
    *,
    retry: tuple[FailureClass, ...] | None = None,
    as_json: bool = False,
) -> Exit:
    """Resume a sweep; with `retry`, first plan its failed cells of these classes again.

    No classes: all of them. `--only` narrows a retry to some cells; the run itself goes over
    everything that is open.
    """
    only = settings.only
    with Workspace(settings).open_state(must_exist=True) as state:
        info = find_sweep(state, stamp)
        recalled, catalog = recall(settings, info.stamp, info.settings)
        plan = plan_of(recalled, catalog, date.today())  # noqa: DTZ011 - the user's date
        if retry is not None and not state.retry(info.id, retry, only):
            raise nothing_to_retry(state, info)
    run = Run(plan, recalled, info.settings, as_json=as_json, again=retry is None)
    return run.go()
