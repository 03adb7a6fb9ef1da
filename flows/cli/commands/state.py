"""`modelmill state`: removing old sweeps from the state."""

from __future__ import annotations

from flows.cli.arguments import Arguments, Parser, add_verbs
from flows.output.console import print_result
from flows.output.quantity import parse_duration
from flows.settings.options import parse_number
from matrix.errors import UsageError


def add(parser: Parser) -> None:
    verb = add_verbs(parser, "home", "state")
    text = "remove sweeps that ended long ago and that no later sweep needs"
    add = verb("prune", text, _prune).add_argument
    add(
        "--older-than",
        type=parse_duration,
        metavar="TIME",
        help="remove sweeps that ended longer ago than this; default: the setting keep_sweeps",
    )
    add(
        "--keep",
        type=parse_number,
        metavar="N",
        help="keep the newest N sweeps of each catalog, selection and feed; default 1",
    )
    add("--dry-run", action="store_true", help="only say what would be removed")


def _prune(arguments: Arguments) -> None:
    from flows.sweep.pruning import prune

    settings, dry_run = arguments.settings, arguments.dry_run
    older = settings.keep_sweeps if arguments.older_than is None else arguments.older_than
    if older is None and arguments.keep is None:
        hint = "give --older-than 90d or --keep 30, or both"
        raise UsageError("prune needs to know what to keep", hint=hint)
    keep = 1 if arguments.keep is None else arguments.keep
    with arguments.work.open_state(must_exist=True) as state:
        found = prune(state, older or 0.0, keep, dry_run=dry_run)
    print_result(arguments, found, found.lines(dry_run=dry_run))
