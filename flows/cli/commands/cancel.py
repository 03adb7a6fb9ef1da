"""`modelmill cancel`: stop a sweep wherever it is being worked on."""

from __future__ import annotations

from flows.cli.arguments import Arguments, Parser, add_settings


def add(parser: Parser) -> None:
    parser.add_argument("batch", metavar="STAMP", help="the batch, or the name of tunings")
    add_settings(parser, ("home", "state"))


def run(arguments: Arguments) -> None:
    from flows.observe.summary import open_text, summary_of
    from flows.plan.recorded import TUNING
    from flows.settings.workspace import find_sweep
    from flows.sweep.cancellation import cancel_sweep

    with arguments.work.open_state(must_exist=True) as state:
        info = find_sweep(state, arguments.batch)
        holders, left = state.leases(info.id), summary_of(state, info)
        if info.exit_code is not None and not holders and not left.resumable:
            print(f"sweep {info.stamp} has ended and has no open cell: there is nothing to cancel")
            return
        cancel_sweep(state, info.id)
        holders, left = state.leases(info.id), summary_of(state, info)
    again = f"modelmill resume {info.stamp}{left.flags}"
    if TUNING in info.settings:
        again = f"modelmill tune --resume {info.stamp} --fleet"
    resume = f": {again}" if left.resumable else ""
    print(f"sweep {info.stamp} is cancelled, {open_text(left)}{resume}")
    for one in holders:
        print(f"  {one.model} is still held by {one.owner}; its lease will run out")
