"""`modelmill retry`: take failed cells up again."""

from __future__ import annotations

from flows.cli.arguments import Arguments, Parser, add_sweeping
from flows.features import feature
from matrix.errors import Exit
from matrix.status import FailureClass


def add(parser: Parser) -> None:
    parser.add_argument(
        "batch", nargs="?", metavar="STAMP", help="the batch; default: the one begun last"
    )
    parser.add_argument(
        "--class",
        dest="classes",
        action="append",
        default=[],
        type=str.upper,
        choices=[str(one) for one in FailureClass],
        help="only cells that failed with this class (repeatable)",
    )
    add_sweeping(parser, "only")


def run(arguments: Arguments) -> Exit:
    classes = tuple(FailureClass(name) for name in arguments.classes)
    if arguments.fleet:
        pool, as_json, fleet = arguments.pool, arguments.json, feature("resume on a fleet")
        code: Exit = fleet(
            arguments.settings, arguments.batch, pool, retry=classes, as_json=as_json
        )
        return code
    from flows.run.resume import retry

    return retry(arguments.settings, arguments.batch, classes, as_json=arguments.json)
