"""`modelmill plan`: the matrix and the effective settings, without doing anything."""

from __future__ import annotations

import argparse
import json
from datetime import date

from flows.arguments import Parser, add_settings, settings_of
from flows.options import PLACES, SELECTION, SWEEP
from flows.planning import plan_of
from flows.settings import Settings
from flows.table import render
from matrix.errors import Exit
from matrix.model import Plan


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Register the command."""
    parser = commands.add_parser("plan", help="print the matrix and the effective settings")
    parser.add_argument("catalog", help="a TOML or JSON file, or a packaged catalog (demo, winml)")
    parser.add_argument("--json", action="store_true", help="for machines")
    add_settings(parser, (*SELECTION, *SWEEP, *PLACES))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    """Plan and print."""
    settings = settings_of(arguments)
    # The stamp's default is the user's date, not Greenwich's.
    plan = plan_of(settings, arguments.catalog, date.today())  # noqa: DTZ011
    if arguments.json:
        from matrix.plan_json import plan_to_json

        effective = {
            name: {"value": item.value, "origin": item.origin} for name, item in settings.items()
        }
        print(json.dumps({**plan_to_json(plan), "settings": effective}, indent=1))
    else:
        print_plan(plan, settings)
    return Exit.OK


def print_plan(plan: Plan, settings: Settings) -> None:
    """The matrix, then what decided it."""
    rows = [
        (cell.id, cell.policy.precision, cell.policy.opset, cell.package, cell.version)
        if not cell.skip
        else (cell.id, "skipped", "-", cell.skip, "")
        for cell in plan.cells()
    ]
    print(render(("cell", "precision", "opset", "package", "version"), rows))
    for notice in plan.notices:
        print(f"note: {notice}")
    skipped = sum(cell.skip is not None for cell in plan.cells())
    print(
        f"\n{len(rows)} cells ({skipped} skipped) of {len(plan.models)} models, "
        f"index {plan.index_package} {plan.index_version}\n"
    )
    shown = [
        (name, _show(item.value), item.origin)
        for name, item in settings.items()
        if item.origin != "default" or item.value not in (None, (), False)
    ]
    print(render(("setting", "value", "from"), shown))


def _show(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
