"""`modelmill sweep`: build, verify and publish every selected cell."""

from __future__ import annotations

import argparse
import json
from datetime import date

from flows.cli.arguments import Parser, add_sweeping, settings_of
from flows.cli.quantity import counted
from flows.cli.settings import SELECTION, Settings
from flows.cli.table import render
from matrix.errors import Exit
from matrix.model import Plan


def add(parser: Parser) -> None:
    parser.add_argument(
        "catalog", help="a TOML or JSON file, or a packaged catalog (demo, contexts, winml, zoo)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be built, and touch nothing"
    )
    add_sweeping(parser, *SELECTION, "stamp")


def run(arguments: argparse.Namespace) -> Exit:
    from flows.sweep.planning import catalog_reference, plan_of

    settings = settings_of(arguments)
    # The stamp's default is the user's date, not Greenwich's.
    plan = plan_of(settings, arguments.catalog, date.today())  # noqa: DTZ011
    if arguments.dry_run:
        return _dry_run(plan, settings, as_json=arguments.json)
    if arguments.fleet:
        from flows.fleet.launch import Launch
        from flows.fleet.run import values_of

        values = values_of(settings, catalog_reference(settings, arguments.catalog))
        return Launch(plan, settings, values, arguments.pool, arguments.json).go()
    from flows.sweep.recorded import remember
    from flows.sweep.run import Run

    recorded = remember(settings, catalog_reference(settings, arguments.catalog))
    return Run(plan, settings, recorded, as_json=arguments.json).go()


def _dry_run(plan: Plan, settings: Settings, *, as_json: bool) -> Exit:
    """Print what a sweep would do with every cell. Nothing is built or written."""
    from flows.sweep.planning import print_notices
    from flows.sweep.published import Listing, list_feed
    from flows.sweep.workspace import Workspace

    feed = Workspace(settings).open_feed()
    found = Listing() if feed.is_new else list_feed(feed, plan, every_stamp=False)
    there = {one.cell for one in found.seen}
    taken = {item.id for item in found.deleted}
    rows = []
    for cell in plan.cells():
        what = "build"
        if cell.skip:
            what = f"skip: {cell.skip}"
        elif cell.id in there:
            what = "nothing: the feed has it"
        elif cell.id in taken:
            what = "conflict: this version was deleted from the feed"
        rows.append((cell.id, what, cell.version))
    names = ("cell", "would", "version")
    if as_json:
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        print(render(names, rows))
        print_notices(plan.notices)
        wanted = sum(row[1] == "build" for row in rows)
        print(f"\n{wanted} of {counted(len(rows), 'cell')} to build")
    return Exit.OK
