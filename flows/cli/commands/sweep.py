"""`modelmill sweep`: build, verify and publish every selected cell."""

from __future__ import annotations

import argparse
from datetime import date

from flows.cli.arguments import Parser, add_sweeping, settings_of
from flows.cli.settings import SELECTION
from matrix.errors import Exit


def add(parser: Parser) -> None:
    parser.add_argument(
        "catalog", help="a TOML or JSON file, or a packaged catalog (demo, contexts, winml)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be built, and touch nothing"
    )
    add_sweeping(parser, *SELECTION, "stamp")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    from flows.sweep.planning import catalog_reference, plan_of

    settings = settings_of(arguments)
    # The stamp's default is the user's date, not Greenwich's.
    plan = plan_of(settings, arguments.catalog, date.today())  # noqa: DTZ011
    if arguments.dry_run:
        from flows.sweep.dry_run import dry_run

        return dry_run(plan, settings, as_json=arguments.json)
    if arguments.fleet:
        from flows.fleet.launch import Launch
        from flows.fleet.run import values_of

        values = values_of(settings, catalog_reference(settings, arguments.catalog))
        return Launch(plan, settings, values, arguments.pool, arguments.json).go()
    from flows.sweep.recorded_settings import remember
    from flows.sweep.run import Run

    recorded = remember(settings, catalog_reference(settings, arguments.catalog))
    return Run(plan, settings, recorded, as_json=arguments.json).go()
