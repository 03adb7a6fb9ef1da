"""`modelmill resume`: go on with an interrupted sweep."""

from __future__ import annotations

import argparse

from flows.cli.arguments import Parser, add_sweeping, settings_of
from flows.cli.settings import SELECTION
from matrix.errors import Exit, UsageError


def add(parser: Parser) -> None:
    parser.add_argument("batch", nargs="?", metavar="STAMP", help="default: the one begun last")
    parser.add_argument(
        "catalog",
        nargs="?",
        help="default: the recorded one; needed where only the feed knows the sweep",
    )
    add_sweeping(parser, *SELECTION)


def run(arguments: argparse.Namespace) -> Exit:
    if arguments.fleet and arguments.catalog:
        raise UsageError(
            "a fleet resumes what its state has recorded",
            hint=f"modelmill sweep {arguments.catalog} --stamp {arguments.batch} --fleet",
        )
    if arguments.fleet:
        from flows.fleet.launch import resume_on_fleet

        settings = settings_of(arguments)
        return resume_on_fleet(settings, arguments.batch, arguments.pool, as_json=arguments.json)
    from flows.sweep.resume import resume

    settings, as_json = settings_of(arguments), arguments.json
    return resume(settings, arguments.batch, arguments.catalog, as_json=as_json)
