"""`modelmill diff`: what differs between two sweeps, from the state alone."""

from __future__ import annotations

from dataclasses import replace

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.console import print_result
from flows.settings.workspace import find_sweep
from matrix.errors import Exit


def add(parser: Parser) -> None:
    add = parser.add_argument
    add("before", metavar="STAMP_A", help="the earlier batch")
    add("after", metavar="STAMP_B", help="the later batch")
    add("--all", action="store_true", help="show every cell, however many there are")
    add("--exit-code", action="store_true", help="exit with 1 if anything differs")
    add_settings(parser, ("home", "state"), as_json=True)


def run(arguments: Arguments) -> Exit:
    from flows.observe.diff.comparison import compare
    from flows.observe.diff.text import lines
    from flows.output.masking import masked, masked_json
    from flows.packages.verdicts import failures_of

    with arguments.work.read_state() as state:
        before = find_sweep(state, arguments.before)
        after = find_sweep(state, arguments.after)
        found = compare(state, before, after)
    trees = [one.after.tree for one in found.changes if one.after]
    again = failures_of(arguments.settings, trees)
    changes = [
        replace(one, again=again.get((one.after and one.after.tree) or "", ""))
        for one in found.changes
    ]
    comparison = replace(found, changes=changes)
    told = map(masked, lines(comparison, everything=arguments.all))
    print_result(arguments, masked_json(comparison.to_json()), told)
    return Exit.CELLS_FAILED if arguments.exit_code and comparison.differs else Exit.OK
