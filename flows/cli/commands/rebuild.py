"""`modelmill rebuild`: whether a published package can be made again, byte for byte."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.quantity import show_duration
from flows.sweep.workspace import Workspace
from matrix.errors import Exit


def add(parser: Parser) -> None:
    parser.add_argument("name", help="the package")
    parser.add_argument("version", help="the version")
    parser.add_argument("--source", type=Path, help="the folder of a model from a local folder")
    parser.add_argument("--recipes", type=Path, help="the folder of recipes of its catalog entry")
    parser.add_argument("--json", action="store_true", help="for machines")
    names = ("timeout", "memory", "allow_remote_code", "allow_pickle", "home", "feed")
    add_settings(parser, names)
    parser.set_defaults(begins="fetching the package")


def run(arguments: argparse.Namespace) -> Exit:
    from flows.packages.rebuild import rebuild

    settings = settings_of(arguments)
    feed = Workspace(settings).open_feed()
    given = {"source": arguments.source, "recipes": arguments.recipes}
    found = rebuild(feed, arguments.name, arguments.version, settings, given)
    if arguments.json:
        print(json.dumps({**asdict(found), "same": found.same}, indent=1))
    elif found.same:
        print(f"{found.package} {found.version}: the same bytes again, tree {found.rebuilt}")
        print(f"every stage was run anew, in {show_duration(found.seconds)}")
    else:
        print(f"{found.package} {found.version}: other bytes, published -> rebuilt")
        for line in found.differences:
            print(f"  {line}")
    return Exit.OK if found.same else Exit.CELLS_FAILED
