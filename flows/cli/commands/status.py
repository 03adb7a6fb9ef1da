"""`modelmill status`: the status of every cell of a sweep, from the state alone."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from flows.cli.arguments import Arguments, Parser, add_detail, add_settings
from flows.output.console import print_json, print_result
from flows.output.quantity import show_moment
from flows.output.table import render
from matrix.errors import Exit

if TYPE_CHECKING:
    from state.reading import StateReader
    from state.records import SweepInfo


def add(parser: Parser) -> None:
    add, switch = parser.add_argument, partial(parser.add_argument, action="store_true")
    add("stamp", nargs="?", help="the batch; default: the one begun last")
    switch("--watch", help="follow it live until it ends; Ctrl-C stops only the watching")
    switch("--failed", help="show only what failed, by cause, with the end of a log for each cause")
    switch("--sweeps", help="list all batches instead")
    switch("--exit-code", help="exit with the sweep's code: 1 if cells failed, ...")
    add_settings(parser, ("home", "state", "only"), as_json=True)
    add_detail(parser)


def run(arguments: Arguments) -> Exit:
    from flows.observe.status import idle_lines, print_status
    from flows.observe.summary import summary_of
    from flows.settings.workspace import find_sweep
    from matrix.globs import matches

    with arguments.work.read_state() as state:
        if arguments.sweeps:
            return _list(arguments, state)
        info = find_sweep(state, arguments.stamp)
        left = arguments.watch and _watch(arguments, state, info)
        info = state.sweep(info.id)
        only, outcomes = arguments.settings.only, list(state.outcomes(info.id))
        if only:
            outcomes = [one for one in outcomes if matches(one.cell, only)]
        summary = summary_of(state, info, outcomes, ended=info.exit_code is not None)
        if arguments.json:
            told = {name: getattr(info, name) for name in ("begun_at", "ended_at", "exit_code")}
            idle = [] if left else idle_lines(state, info, summary)
            document = {**summary.to_json(), **told, "idle": idle}
            if arguments.watch:
                print(json.dumps({"type": "summary", **document}), flush=True)
            else:
                print_json({**document, "outcomes": outcomes})
        elif arguments.watch and not arguments.failed:
            lines = [] if left else idle_lines(state, info, summary)
            print("\n".join([*summary.lines(), *(f"  {line}" for line in lines)]))
        else:
            print_status(state, info, summary, outcomes, failed_only=arguments.failed)
    return summary.exit_code() if arguments.exit_code else Exit.OK


def _watch(arguments: Arguments, state: StateReader, info: SweepInfo) -> bool:
    """Follow a sweep; returns whether the user has stopped that."""
    from flows.observe.following import StatusWatch
    from flows.observe.views import choose_view
    from flows.stop import Stop, stopped_by_signals

    only, stop = arguments.settings.only, Stop()
    with stopped_by_signals(stop):
        if not arguments.json:
            print(f"sweep {info.stamp} -> {info.feed}", flush=True)
        view = choose_view(as_json=arguments.json)
        StatusWatch(state, info, view, only, failed=arguments.failed).follow(stop)
    return bool(stop)


def _list(arguments: Arguments, state: StateReader) -> Exit:
    sweeps = state.sweeps()
    rows = []
    for one in sweeps:
        ended = "running or interrupted" if one.exit_code is None else f"exit {one.exit_code}"
        rows.append((one.stamp, one.feed, show_moment(one.begun_at), ended))
    print_result(arguments, sweeps, [render(("stamp", "feed", "begun", "ended"), rows)])
    return Exit.OK
