"""`modelmill deploy`: tell the Prefect server of a fleet what it needs to know."""

from __future__ import annotations

import argparse
import os

from flows.cli.activity import waiting_for
from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.settings import FORM
from matrix.errors import Exit, UsageError


def add(parser: Parser) -> None:
    parser.add_argument("--pool", default="modelmill", help="the fleet; default modelmill")
    parser.add_argument("--nightly", metavar="CRON", help="also sweep at these times")
    parser.add_argument("--timezone", default="UTC", help="of the cron line; default UTC")
    parser.add_argument("--catalog", default="winml", help="what the nightly sweep builds")
    parser.add_argument(
        "--notify",
        metavar="BLOCK",
        help="tell of every sweep that fails: TYPE/NAME of a block on the server, for example"
        " slack-webhook/team, or 'webhook' with its address in NOTIFY_URL",
    )
    add_settings(parser, FORM)


def run(arguments: argparse.Namespace) -> Exit:
    from flows.sweep.planning import catalog_reference

    if not os.environ.get("PREFECT_API_URL"):
        raise UsageError("there is no Prefect server to deploy to", hint="set PREFECT_API_URL")
    waiting_for("asking the Prefect server")
    from flows.fleet.deployments import deploy, deploy_nightly, deploy_notification
    from flows.fleet.parent_runs import reached

    with reached():
        names = deploy(arguments.pool)
        if arguments.nightly:
            settings = settings_of(arguments)
            parameters = {
                "catalog": catalog_reference(settings, arguments.catalog),
                "settings": settings.chosen(name for name in FORM if name in settings.origins),
            }
            names.append(
                deploy_nightly(arguments.pool, arguments.nightly, arguments.timezone, parameters)
            )
        if arguments.notify:
            names.append(deploy_notification(arguments.notify, os.environ))
    for name in names:
        print(f"deployed {name}")
    return Exit.OK
