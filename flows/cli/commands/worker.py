"""`modelmill worker`: make this machine part of a fleet."""

from __future__ import annotations

import os

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.activity import waiting_for
from flows.output.quantity import parse_duration


def add(parser: Parser) -> None:
    # fmt: off
    add = parser.add_argument
    add("--pool", default="modelmill", help="name of the fleet; default modelmill")
    add("--engines", default="", metavar="NAMES",
        help="engines to announce, separated by commas; default: all that work here")
    add("--sweeps", type=int, default=1, metavar="N",
        help="how many sweeps this machine may lead at once; default 1")
    add("--drain-limit", type=parse_duration, default=1800.0, metavar="TIME",
        help="how long current models may take when the worker stops; default 30m")
    names = ("home", "state", "store", "cache", "cache_read_only", "jobs")
    disk = ("memory", "memory_budget", "disk_budget", "keep_free")
    more = ("keep_local", "retention", "has", "bench_machine", "allow_remote_code", "allow_pickle")
    add_settings(parser, (*names, *disk, *more))
    parser.set_defaults(goes_on=True, begins="looking for what works on this machine")
    # fmt: on


def run(arguments: Arguments) -> None:
    from flows.fleet.worker import Worker, queue_name
    from flows.stop import Stop, stopped_by_signals

    engines = [name.strip() for name in arguments.engines.split(",") if name.strip()]
    worker = Worker(
        arguments.settings, arguments.pool, engines, arguments.sweeps, arguments.drain_limit
    )
    waiting_for("looking for what works on this machine")
    words = worker.preflight(os.environ)
    from flows.fleet.deployments import announce
    from flows.fleet.lead import reached

    with reached():
        announce(arguments.pool, queue_name(words), words)
    print("announces " + " ".join(sorted(words)), flush=True)
    stop = Stop()
    with stopped_by_signals(stop, arguments.drain_limit + 30.0):
        worker.serve(words, queue_name(words), os.environ, stop)
