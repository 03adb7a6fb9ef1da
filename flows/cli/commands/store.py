"""`modelmill store`: what the local content store holds, and making it smaller."""

from __future__ import annotations

import math
import time

from flows.cli.arguments import Arguments, Parser, add_verbs
from flows.output.console import print_result
from flows.output.quantity import parse_duration, parse_size, show_size
from matrix.errors import UsageError
from workers.store import GcReport, Store, usage_of
from workers.store.folder import require_store


def add(parser: Parser) -> None:
    verb = add_verbs(parser, "home", "store", "disk_budget")
    verb("du", "show how much the store holds", _du)
    text = "evict the results that were least recently used"
    add = verb("gc", text, _gc, as_json=False).add_argument
    add(
        "--budget",
        type=parse_size,
        metavar="SIZE",
        help="evict results until the store is no larger than this",
    )
    add(
        "--unused",
        type=parse_duration,
        metavar="TIME",
        help="evict results that were not used for this long",
    )
    verb("clear", "remove everything that no running sweep uses", _clear, as_json=False)


def _du(arguments: Arguments) -> None:
    store = arguments.work.store
    usage = usage_of(store)
    held = f"{usage.actions} stage results, {usage.blobs} files, {show_size(usage.size)}"
    print_result(arguments, usage, [f"{store}: {held}"])


def _gc(arguments: Arguments) -> None:
    budget = arguments.settings.disk_budget if arguments.budget is None else arguments.budget
    if budget is None and arguments.unused is None:
        hint = "give --budget 20GB or --unused 14d, or both"
        raise UsageError("gc needs to know what to keep", hint=hint)
    since = 0.0 if arguments.unused is None else time.time() - arguments.unused
    _tell(_open(arguments).gc(math.inf if budget is None else budget, since))


def _clear(arguments: Arguments) -> None:
    _tell(_open(arguments).clear())


def _open(arguments: Arguments) -> Store:
    """The existing store; none is created."""
    root = arguments.work.store
    require_store(root)
    return Store(root)


def _tell(report: GcReport) -> None:
    sizes = f"freed {show_size(report.freed)}, {show_size(report.kept)} left"
    print(f"evicted {len(report.evicted)} stage results, {sizes}")
    if report.pinned:
        print(f"{report.pinned} are in use by a running sweep and stay")
