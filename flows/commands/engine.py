"""`modelmill engine`: which engines there are, and environments for those that need their own."""

from __future__ import annotations

import argparse
import json

from flows.arguments import Parser, add_settings, settings_of
from flows.table import render
from matrix.errors import Exit


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Register the command and its verbs."""
    parser = commands.add_parser("engine", help="list engines; make an engine's own environment")
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    ls = verbs.add_parser("ls", help="the engines that are installed")
    ls.add_argument("--json", action="store_true", help="for machines")
    add_settings(ls, ())
    ls.set_defaults(run=_ls)


def _ls(arguments: argparse.Namespace) -> Exit:
    from workers.engines import installed_engines

    settings = settings_of(arguments)
    rows = [
        (name, point.value, settings.engine_pythons.get(name, "this one"))
        for name, point in installed_engines().items()
    ]
    if arguments.json:
        names = ("engine", "object", "python")
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1))
    else:
        print(render(("engine", "object", "python"), rows))
    return Exit.OK
