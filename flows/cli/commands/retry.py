"""`modelmill retry`: take failed cells up again."""

from __future__ import annotations

import argparse

from flows.cli.arguments import Parser, add_detail, add_settings, settings_of
from flows.cli.settings import OF_A_SWEEP, PLACES
from matrix.errors import Exit
from matrix.status import FailureClass


def add(parser: Parser) -> None:
    parser.add_argument("batch", nargs="?", metavar="STAMP", help="default: the one begun last")
    parser.add_argument(
        "--class",
        dest="classes",
        action="append",
        default=[],
        type=str.upper,
        choices=[str(one) for one in FailureClass],
        help="only cells that failed for this class of reason (repeat for more)",
    )
    parser.add_argument("--fleet", action="store_true", help="let the workers of a fleet do it")
    parser.add_argument("--pool", default="modelmill", help="the fleet; default modelmill")
    parser.add_argument("--json", action="store_true", help="events and summary as JSON lines")
    names = [name for name in ("only", *OF_A_SWEEP, *PLACES) if name != "stamp"]
    add_settings(parser, names)
    add_detail(parser)
    parser.set_defaults(run=run, goes_on=True)


def run(arguments: argparse.Namespace) -> Exit:
    classes = tuple(FailureClass(name) for name in arguments.classes)
    settings = settings_of(arguments)
    if arguments.fleet:
        from flows.fleet.resume import resume_on_fleet

        pool, as_json = arguments.pool, arguments.json
        return resume_on_fleet(settings, arguments.batch, pool, retry=classes, as_json=as_json)
    from flows.sweep.rerun import retry

    return retry(settings, arguments.batch, classes, as_json=arguments.json)
