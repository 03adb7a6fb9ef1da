"""`modelmill resume`: continue an interrupted sweep."""

from __future__ import annotations

from flows.cli.arguments import Arguments, Parser, add_sweeping
from flows.features import feature
from flows.settings.settings import SELECTION
from matrix.errors import Exit, UsageError


def add(parser: Parser) -> None:
    add = parser.add_argument
    add("batch", nargs="?", metavar="STAMP", help="the batch; default: the one begun last")
    text = "the catalog; needed only if this state does not know the sweep"
    add("catalog", nargs="?", help=text)
    add_sweeping(parser, *SELECTION)


def run(arguments: Arguments) -> Exit:
    batch, catalog, as_json = arguments.batch, arguments.catalog, arguments.json
    if arguments.fleet and catalog:
        hint = f"modelmill sweep {catalog} --stamp {batch} --fleet"
        raise UsageError("a fleet resumes what its state has recorded", hint=hint)
    if arguments.fleet:
        fleet = feature("resume on a fleet")
        code: Exit = fleet(arguments.settings, batch, arguments.pool, as_json=as_json)
        return code
    from flows.run.resume import resume

    return resume(arguments.settings, batch, catalog, as_json=as_json)
