"""`modelmill store`: what the local content store holds, and making it smaller."""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.quantity import parse_duration, parse_size, show_size
from flows.cli.settings import Settings
from flows.sweep.workspace import Workspace
from matrix.errors import Exit, UsageError
from workers.store import GcReport, Store, usage_of
from workers.store.folder import require_store


def add(parser: Parser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    du = verbs.add_parser("du", help="what it holds")
    du.add_argument("--json", action="store_true", help="for machines")
    du.set_defaults(run=_du)
    gc = verbs.add_parser("gc", help="evict what was least recently used, down to --budget")
    gc.add_argument("--budget", type=parse_size, default=None, metavar="SIZE", help="what may stay")
    gc.add_argument(
        "--unused", type=parse_duration, metavar="TIME", help="evict what was not used for so long"
    )
    gc.set_defaults(run=_gc)
    clear = verbs.add_parser("clear", help="remove everything that no running sweep uses")
    clear.set_defaults(run=_clear)
    for verb in (du, gc, clear):
        add_settings(verb, ("home", "store", "disk_budget"))


def _du(arguments: argparse.Namespace) -> Exit:
    settings = settings_of(arguments)
    usage = usage_of(Workspace(settings).store)
    if arguments.json:
        print(json.dumps(asdict(usage)))
    else:
        print(
            f"{Workspace(settings).store}: {usage.actions} stage results, {usage.blobs} files, "
            f"{show_size(usage.size)}"
        )
    return Exit.OK


def _gc(arguments: argparse.Namespace) -> Exit:
    settings = settings_of(arguments)
    budget = settings.disk_budget if arguments.budget is None else arguments.budget
    if budget is None and arguments.unused is None:
        raise UsageError(
            "gc needs to know what may stay", hint="give --budget 20GB or --unused 14d, or both"
        )
    since = 0.0 if arguments.unused is None else time.time() - arguments.unused
    return _tell(_open(settings).gc(math.inf if budget is None else budget, since))


def _clear(arguments: argparse.Namespace) -> Exit:
    return _tell(_open(settings_of(arguments)).clear())


def _open(settings: Settings) -> Store:
    """The existing store; none is created."""
    root = Workspace(settings).store
    require_store(root)
    return Store(root)


def _tell(report: GcReport) -> Exit:
    print(
        f"evicted {len(report.evicted)} stage results, freed {show_size(report.freed)}, "
        f"{show_size(report.kept)} left"
    )
    if report.pinned:
        print(f"{report.pinned} are in use by a running sweep and stay")
    return Exit.OK
