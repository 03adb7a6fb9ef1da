"""`modelmill status`: the status of every cell of a sweep, from the state alone."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from flows.cli.arguments import Parser, add_detail, add_settings, settings_of
from flows.cli.plaintext import plain_text
from flows.cli.quantity import brief, show_duration, show_moment, show_size
from flows.cli.table import render
from flows.observe.summary import Summary, open_text, summarize
from flows.observe.waiting import waiting
from flows.sweep.lookup import find_sweep
from flows.sweep.planned_packages import is_export
from flows.sweep.workspace import Workspace
from matrix.errors import Exit
from matrix.globs import matches
from matrix.status import Status
from state.records import Outcome, SweepInfo

if TYPE_CHECKING:
    from state.ledger import State


_MOST_CELLS = 20
"""Cells that are listed for a cause; `--json` has all."""
_LOG_LINES = 40
_SHORT = 80
"""Characters of a message beside a cell; the cause shows all of it."""


def add(parser: Parser) -> None:
    parser.add_argument("stamp", nargs="?", help="the batch; default: the one begun last")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="follow it live until it ends; Ctrl-C stops only the watching",
    )
    parser.add_argument(
        "--failed",
        action="store_true",
        help="only what failed, by cause, with the end of a log of each",
    )
    parser.add_argument("--sweeps", action="store_true", help="list all batches instead")
    parser.add_argument(
        "--exit-code", action="store_true", help="end as the sweep did: 1 if cells failed, ..."
    )
    add_settings(parser, ("home", "state", "only"))
    add_detail(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    settings = settings_of(arguments)
    with Workspace(settings).read_state() as state:
        if arguments.sweeps:
            return _list(state, as_json=arguments.json)
        info = find_sweep(state, arguments.stamp)
        if arguments.watch:
            code = _watch(state, info, as_json=arguments.json)
            return code if arguments.exit_code else Exit.OK
        outcomes = [
            one
            for one in state.outcomes(info.id)
            if not settings.only or matches(one.cell, settings.only)
        ]
        summary = summarize(info.stamp, info.feed, outcomes, publish=info.publish)
        if summary.unfinished and info.exit_code is not None:
            summary = replace(summary, waiting=tuple(waiting(state, info.id).lines()))
        if arguments.json:
            document = _document(info, summary, outcomes)
            print(json.dumps({**document, "idle": _idle(state, info, summary)}, indent=1))
        else:
            _print(state, info, summary, outcomes, failed_only=arguments.failed)
    return summary.exit_code() if arguments.exit_code else Exit.OK


def _watch(state: State, info: SweepInfo, *, as_json: bool) -> Exit:
    from flows.observe.following import StatusWatch
    from flows.observe.progress import choose_view
    from flows.sweep.stop import Stop, stopped_by_signals

    stop = Stop()
    with stopped_by_signals(stop):
        if not as_json:
            print(f"sweep {info.stamp} -> {info.feed}", flush=True)
        StatusWatch(state, info, choose_view(as_json=as_json)).follow(stop)
    info = state.sweep(info.id)
    summary = summarize(info.stamp, info.feed, state.outcomes(info.id), publish=info.publish)
    if as_json:
        document = {**summary.to_json(), "exit_code": info.exit_code}
        print(json.dumps({"type": "summary", **document}), flush=True)
    else:
        print("\n".join(summary.lines()))
    return summary.exit_code()


def _list(state: State, *, as_json: bool) -> Exit:
    sweeps = state.sweeps()
    if as_json:
        print(json.dumps([asdict(one) for one in sweeps], indent=1))
        return Exit.OK
    rows = [
        (
            one.stamp,
            one.feed,
            show_moment(one.begun_at),
            "running or interrupted" if one.exit_code is None else f"exit {one.exit_code}",
        )
        for one in sweeps
    ]
    print(render(("stamp", "feed", "begun", "ended"), rows))
    return Exit.OK


def _document(info: SweepInfo, summary: Summary, outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        **summary.to_json(),
        "begun_at": info.begun_at,
        "ended_at": info.ended_at,
        "exit_code": info.exit_code,
        "outcomes": [asdict(one) for one in outcomes],
    }


def _print(
    state: State,
    info: SweepInfo,
    summary: Summary,
    outcomes: list[Outcome],
    *,
    failed_only: bool,
) -> None:
    if failed_only:
        _print_causes(summary, outcomes)
    elif outcomes:
        rows = [(one.cell, one.status, _facts(one)) for one in outcomes]
        print(f"{render(('cell', 'status', ''), rows)}\n")
    print(f"feed {info.feed}, begun {show_moment(info.begun_at)}")
    print("\n".join([summary.headline()] if failed_only else summary.lines()))
    holders = state.leases(info.id)
    for holder in holders:
        silent = ", silent: somebody else may take it" if holder.expired else ""
        since = show_moment(holder.taken_at)
        doing = f": {holder.activity}" if holder.activity and not holder.expired else ""
        print(f"  in work: {holder.model} by {holder.owner} since {since}{silent}{doing}")
    for line in _idle(state, info, summary):
        print(f"  {line}")


def _idle(state: State, info: SweepInfo, summary: Summary) -> list[str]:
    """Why nobody works on what is open."""
    if not summary.unfinished:
        return []
    why = waiting(state, info.id)
    busy = any(not one.expired for one in state.leases(info.id))
    lines = [] if busy else [f"{open_text(summary)}, nobody at work"]
    lines += why.lines() if info.exit_code is None else []
    if why.fleet and info.exit_code is None and lines:
        from flows.fleet.parent_runs import status_lines

        return lines + status_lines(info.id, info.stamp)
    if not busy:
        lines[0] += f": modelmill resume {info.stamp}{' --fleet' if why.fleet else ''}"
    return lines


def _print_causes(summary: Summary, outcomes: list[Outcome]) -> None:
    """Each cause with its cells and the end of one log, since the others say the same."""
    known = {one.cell: one for one in outcomes}
    for group in summary.groups:
        print("\n".join(group.lines(indent="")))
        members = (*group.cells, *group.exports)
        if len(members) > 1:
            for cell in members[:_MOST_CELLS]:
                print(f"    {known[cell].status:<14} {cell}")
        if len(members) > _MOST_CELLS:
            more = f"modelmill status {summary.stamp} --json"
            print(f"    ... and {len(members) - _MOST_CELLS} more: {more}")
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
    return " ".join(parts)
