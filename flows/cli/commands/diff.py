"""`modelmill diff`: what differs between two sweeps, from the state alone."""

from __future__ import annotations

import argparse
import json

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.sweep.workspace import Workspace, find_sweep
from matrix.errors import Exit


def add(parser: Parser) -> None:
    parser.add_argument("before", metavar="STAMP_A", help="the earlier batch")
    parser.add_argument("after", metavar="STAMP_B", help="the later batch")
    parser.add_argument("--all", action="store_true", help="every cell, however many")
    parser.add_argument("--exit-code", action="store_true", help="end with 1 if anything differs")
    parser.add_argument("--json", action="store_true", help="for machines")
    add_settings(parser, ("home", "state"))


def run(arguments: argparse.Namespace) -> Exit:
    from flows.observe.diff.comparison import compare
    from flows.observe.diff.text import lines
    from flows.observe.masking import masked, masked_json

    with Workspace(settings_of(arguments)).read_state() as state:
        before = find_sweep(state, arguments.before)
        after = find_sweep(state, arguments.after)
        comparison = compare(state, before, after)
    if arguments.json:
        print(json.dumps(masked_json(comparison.to_json()), indent=1))
    else:
        print("\n".join(masked(line) for line in lines(comparison, everything=arguments.all)))
    return Exit.CELLS_FAILED if arguments.exit_code and comparison.differs else Exit.OK
