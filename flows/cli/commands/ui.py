"""`modelmill ui`: Prefect's own interface, on what the sweeps of this machine have shown."""

from __future__ import annotations

import os

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.activity import waiting_for
from matrix.errors import Unusable, UsageError


def add(parser: Parser) -> None:
    text = "the port, which only this machine can reach; default 4200; 0: any free port"
    parser.add_argument("--port", type=int, default=4200, metavar="N", help=text)
    add_settings(parser, ("home", "state"))


def run(arguments: Arguments) -> None:
    from flows.prefect.server import is_taken, prefect_home_of, start_server

    if url := os.environ.get("PREFECT_API_URL"):
        text = "sweeps are shown on the server that PREFECT_API_URL names"
        from httpx import URL

        shown = URL(url).copy_with(userinfo=None, path="/")
        raise UsageError(text, hint=f"open {shown}, or unset the variable")
    home, state = arguments.work.home, arguments.work.state
    if not prefect_home_of(home, os.environ).is_dir():
        text = f"no sweep of the folder {home} has been shown yet"
        raise UsageError(text, hint="run one first, or name another folder with --home")
    if is_taken(arguments.port):
        text = f"port {arguments.port} of this machine is taken"
        raise UsageError(text, hint="choose another one with --port; 0 takes a free one")
    from flows.stop import Stop, stopped_by_signals

    stop = Stop()
    with stopped_by_signals(stop):
        waiting_for("starting Prefect's interface")
        server = start_server(home, os.environ, stop.event, interface=arguments.port, state=state)
        try:
            server.wait(stop.event)
            if stop:
                return
            from httpx import HTTPError

            from flows.prefect.old_runs import crash_lost_runs
            from flows.prefect.shown_run import connected
            from workers.sources.errors import one_line

            try:
                with connected(server.url) as client:
                    crash_lost_runs(client)
            except HTTPError as error:
                text = f"Prefect's server does not take our requests: {one_line(error)}"
                hint = "a password of PREFECT_SERVER_API_AUTH_STRING is wanted in"
                raise Unusable(text, hint=f"{hint} PREFECT_API_AUTH_STRING too") from error
            print(f"{server.url.removesuffix('/api')} (Ctrl-C ends it)", flush=True)
            while not stop.wait(0.5):
                if not server.lives:
                    raise Unusable(server.trouble())
        finally:
            server.stop()
