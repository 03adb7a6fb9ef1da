"""A dry run: plans and lists the feed, builds nothing, writes nothing."""

from __future__ import annotations

import json

from flows.cli.quantity import counted
from flows.cli.settings import Settings
from flows.cli.table import render
from flows.sweep.planning import print_notices
from flows.sweep.published import Listing, list_feed
from flows.sweep.workspace import Workspace
from matrix.errors import Exit
from matrix.model import Plan


def dry_run(plan: Plan, settings: Settings, *, as_json: bool) -> Exit:
    """Print what a sweep would do with every cell."""
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
    if as_json:
        print(
            json.dumps([dict(zip(("cell", "would", "version"), row, strict=True)) for row in rows])
        )
    else:
        print(render(("cell", "would", "version"), rows))
        print_notices(plan.notices)
        wanted = sum(row[1] == "build" for row in rows)
        print(f"\n{wanted} of {counted(len(rows), 'cell')} to build")
    return Exit.OK
