"""`modelmill sweep`: build, verify and publish every selected cell."""

from __future__ import annotations

import json
from datetime import date

from flows.cli.arguments import CATALOG, Arguments, Parser, add_sweeping
from flows.features import feature
from flows.output.quantity import counted
from flows.output.table import render
from flows.settings.settings import SELECTION
from matrix.errors import Exit
from matrix.model import Plan


def add(parser: Parser) -> None:
    add = parser.add_argument
    add("catalog", help=CATALOG)
    add("--dry-run", action="store_true", help="say what would be built, and change nothing")
    add_sweeping(parser, *SELECTION, "stamp")


def run(arguments: Arguments) -> Exit:
    from flows.plan.planning import catalog_reference, plan_of

    settings = arguments.settings
    # The stamp's default is the user's date, not Greenwich's.
    plan = plan_of(settings, arguments.catalog, date.today())  # noqa: DTZ011
    if arguments.dry_run:
        return _dry_run(arguments, plan)
    catalog = catalog_reference(settings, arguments.catalog)
    if arguments.fleet:
        pool, fleet = arguments.pool, feature("fleet")
        code: Exit = fleet(settings, plan, catalog, pool, as_json=arguments.json)
        return code
    from flows.plan.recorded import remember
    from flows.run.run import Run

    recorded = remember(settings, catalog)
    return Run(plan, settings, recorded, as_json=arguments.json).go()


def _dry_run(arguments: Arguments, plan: Plan) -> Exit:
    """Print what a sweep would do with every cell. Nothing is built or written."""
    from flows.plan.planning import notice_lines
    from flows.sweep.listing import Listing, check_present, list_feed

    feed = arguments.work.open_feed()
    publishes = not arguments.settings.no_publish
    if publishes and feed.is_new and arguments.work.has_state():
        with arguments.work.read_state() as state:
            check_present(feed, state)
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
    wanted = sum(what == "build" for _cell, what, _version in rows)
    total = f"\n{wanted} of {counted(len(rows), 'cell')} to build"
    if arguments.json:  # in one line, as all that a sweep prints for programs
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        print(render(names, rows), *notice_lines(plan.notices), total, sep="\n")
    return Exit.OK
