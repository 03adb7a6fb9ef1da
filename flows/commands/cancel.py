"""`modelmill cancel`: stop a sweep wherever it is being worked on."""

from __future__ import annotations

import argparse

from flows.arguments import Parser, add_settings, settings_of
from matrix.errors import Exit


def add(parser: Parser) -> None:
    """The arguments."""
    parser.add_argument("batch", metavar="STAMP")
    add_settings(parser, ("home", "state"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    """Tell everybody through the state, and wait until they have let go."""
    from flows.fleet.launch import cancel_sweep
    from flows.lookup import find_sweep
    from flows.workspace import Workspace

    with Workspace(settings_of(arguments)).open_state(must_exist=True) as state:
        info = find_sweep(state, arguments.batch)
        cells = cancel_sweep(state, info.id)
        print(f"sweep {info.stamp} is cancelled, {cells} cells and exports are left open")
        holders = state.leases(info.id)
    for one in holders:
        print(f"  {one.model} is still held by {one.owner}; its lease will run out")
    return Exit.OK
