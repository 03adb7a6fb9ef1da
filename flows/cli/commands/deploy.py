"""`modelmill deploy`: tell the Prefect server of a fleet what it needs to know."""

from __future__ import annotations

import os

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.activity import waiting_for
from flows.settings.settings import FORM
from matrix.errors import UsageError


def add(parser: Parser) -> None:
    # fmt: off
    add = parser.add_argument
    add("--pool", default="modelmill", help="name of the fleet; default modelmill")
    add("--nightly", metavar="CRON", help="also schedule a sweep at these times")
    add("--timezone", default="UTC", help="time zone of --nightly; default UTC")
    add("--catalog", default="winml", help="what the nightly sweep builds")
    add("--notify", metavar="BLOCK",
        help="report every sweep that fails: TYPE/NAME of a block on the server, for example"
             " slack-webhook/team, or 'webhook' with its address in NOTIFY_URL")
    add_settings(parser, FORM)
    # fmt: on


def run(arguments: Arguments) -> None:
    from flows.plan.planning import catalog_reference

    if not os.environ.get("PREFECT_API_URL"):
        raise UsageError("there is no Prefect server to deploy to", hint="set PREFECT_API_URL")
    waiting_for("asking the Prefect server")
    from flows.fleet.deployments import deploy, deploy_nightly, deploy_notification
    from flows.fleet.lead import reached

    with reached():
        names = deploy(arguments.pool)
        if arguments.nightly:
            settings = arguments.settings
            parameters = {
                "catalog": catalog_reference(settings, arguments.catalog),
                "settings": settings.chosen(name for name in FORM if name in settings.origins),
            }
            pool, cron, zone = arguments.pool, arguments.nightly, arguments.timezone
            names.append(deploy_nightly(pool, cron, zone, parameters))
        if arguments.notify:
            names.append(deploy_notification(arguments.notify, os.environ))
    for name in names:
        print(f"deployed {name}")
