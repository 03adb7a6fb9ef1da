"""Where a sweep stands, for `modelmill status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flows.observe.evidence import judged_of, notices_of, partly_taken, run_on
from flows.observe.failures import since_when
from flows.observe.summary import Summary, open_text
from flows.observe.sweep_data import earlier_sweeps, failing_since
from flows.observe.unserved import unserved_of
from flows.output.quantity import brief, limited, plain_text, show_duration, show_moment, show_size
from flows.output.table import render
from flows.plan.recorded import TUNING
from matrix.model import is_export
from matrix.status import Status
from matrix.trials import TuningStatus
from state.reading import StateReader
from state.records import Outcome, SweepInfo

_MOST_CELLS = 20
"""Cells that are listed for a cause; `--json` has all."""
_LOG_LINES = 40
_SHORT = 80
"""Characters of a message beside a cell; the cause shows all of it."""


def print_status(
    state: StateReader,
    info: SweepInfo,
    summary: Summary,
    outcomes: list[Outcome],
    *,
    failed_only: bool,
) -> None:
    """For people: the cells (or with `failed_only` the causes of failures), then who is at work."""
    if failed_only:
        earlier = earlier_sweeps(state, info)
        failing = failing_since(state, earlier, outcomes)
        print_causes(summary, outcomes, failing if earlier else None)
    elif outcomes:
        rows = [(one.cell, one.status, _facts(one)) for one in outcomes]
        print(f"{render(('cell', 'status', ''), rows)}\n")
    print(f"feed {info.feed}, begun {show_moment(info.begun_at)}")
    print("\n".join([summary.headline()] if failed_only else summary.lines()))
    if TUNING in info.settings:
        print(_tunings_line(state, info.stamp))
    holders = state.leases(info.id)
    for holder in holders:
        silent = ", silent: another process may take it over" if holder.expired else ""
        since = show_moment(holder.taken_at)
        doing = f": {holder.activity}" if holder.activity and not holder.expired else ""
        print(f"  in work: {holder.model} by {holder.owner} since {since}{silent}{doing}")
    for line in idle_lines(state, info, summary):
        print(f"  {line}")


def _tunings_line(state: StateReader, name: str) -> str:
    counts = Counter(one.status for one in state.tunings(name))
    told = ", ".join(f"{counts[one]} {one}" for one in TuningStatus if counts[one])
    return f"tunings: {told}; what they have found: modelmill tune report {name}"


def idle_lines(state: StateReader, info: SweepInfo, summary: Summary) -> list[str]:
    """Why no process works on the open cells."""
    if not summary.resumable:
        return []
    why = unserved_of(state, info.id)
    busy = any(not one.expired for one in state.leases(info.id))
    ending = summary.unindexed and info.exit_code is None and not state.is_abandoned(info.id)
    idle = "; if that lasts" if ending else ", no process is working"
    lines = [] if busy else [f"{open_text(summary)}{idle}"]
    lines += why.lines() if info.exit_code is None else []
    if not busy and not (why.fleet and info.exit_code is None and why.silent is None):
        lines[0] += f": modelmill resume {info.stamp}{' --fleet' if why.fleet else ''}"
    return lines


def print_causes(
    summary: Summary, outcomes: list[Outcome], failing: Mapping[str, str] | None = None
) -> None:
    """Each cause with its cells and the end of one log, since the others say the same.

    `failing`: since which sweep cells fail; None: there is no sweep before this one.
    """
    known = {one.cell: one for one in outcomes}
    for group in summary.groups:
        print("\n".join(group.lines(indent="")))
        if failing is not None:
            since = since_when(group, failing)
            print("  new in this sweep" if since == "new" else f"  {since}")
        members = (*group.cells, *group.exports)
        if len(members) > 1:
            lines = [f"    {known[cell].status:<14} {cell}" for cell in members]
            more = f"    ... and {{}} more: modelmill status {summary.stamp} --json"
            print("\n".join(limited(lines, _MOST_CELLS, more)))
        logged = next((cell for cell in members if known[cell].log_tail), None)
        if logged is not None:
            _print_log(logged, known[logged].log_tail or "")
        print()


def _print_log(cell: str, tail: str) -> None:
    lines = plain_text(tail).splitlines()[-_LOG_LINES:]
    print(f"  the end of the log of {cell}:")
    print("\n".join(f"    {line}" for line in lines))


def _facts(one: Outcome) -> str:
    if one.status.failed:
        return brief(f"{one.failure}: {one.message or ''}", _SHORT)
    if one.status is Status.SKIPPED:
        return one.message or ""
    parts = []
    if one.bytes:
        parts.append(show_size(one.bytes))
    if one.seconds:
        parts.append(show_duration(one.seconds))
    parts.append("export" if is_export(one.cell) else one.precision)
    if ran := run_on(one.evidence):
        parts.append(f"on {ran}")
    proof = judged_of(one)
    told = [*([str(proof)] if proof else []), *filter(None, [partly_taken(one.evidence)])]
    notices = (brief(one, _SHORT) for one in (*told, *notices_of(one.evidence)))
    return "; ".join([" ".join(parts), *notices])
