"""`modelmill rebuild`: whether a published package can be made again, byte for byte."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.console import print_result
from flows.output.quantity import show_duration
from matrix.errors import Exit


def add(parser: Parser) -> None:
    add = parser.add_argument
    add("name", help="the package")
    add("version", help="the version")
    add("--source", type=Path, help="the model's folder, if it was built from a local one")
    add("--recipes", type=Path, help="the folder of recipes, if its catalog entry has one")
    names = ("timeout", "memory", "allow_remote_code", "allow_pickle", "key", "home", "feed")
    add_settings(parser, names, as_json=True)
    parser.set_defaults(begins="fetching the package")


def run(arguments: Arguments) -> Exit:
    from flows.packages.rebuild import rebuild

    feed = arguments.work.open_feed()
    given = {"source": arguments.source, "recipes": arguments.recipes}
    found = rebuild(feed, arguments.name, arguments.version, arguments.settings, given)
    title = f"{found.package} {found.version}"
    if found.same:
        took = f"every stage ran again, in {show_duration(found.seconds)}"
        lines = [f"{title}: the same bytes again, tree {found.rebuilt}", took]
    else:
        changes = (f"  {line}" for line in found.differences)
        lines = [f"{title}: other bytes, published -> rebuilt", *changes]
    if not found.signed:
        lines.append("source, commit and recipe are what the package says: no --key was given")
    print_result(arguments, {**asdict(found), "same": found.same}, lines)
    return Exit.OK if found.same else Exit.CELLS_FAILED
