"""`modelmill doctor`: what of this machine works, and what to do about the rest."""

from __future__ import annotations

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.activity import waiting_for
from flows.output.console import print_json, tell
from flows.settings.settings import PLACES
from matrix.errors import Exit


def add(parser: Parser) -> None:
    parser.add_argument(
        "--install-ep",
        action="append",
        default=[],
        metavar="EP",
        help="have Windows ML download this execution provider first (repeatable)",
    )
    add_settings(parser, ("engine", "runtimes", "allow_ep_download", *PLACES), as_json=True)


def run(arguments: Arguments) -> Exit:
    waiting_for("asking the engines")
    from flows.cli.doctor import Health, examine, install_provider

    for name in arguments.install_ep:
        tell(install_provider(arguments.settings, name))
    findings = []
    for finding in examine(arguments.settings):
        findings.append(finding)
        if not arguments.json:
            print(f"{finding.health:<4}  {finding.what}: {finding.detail}", flush=True)
            if finding.mend:
                print(f"      {finding.mend}")
            waiting_for("checking what works")
    if arguments.json:
        print_json(findings)
    bad = any(finding.health is Health.BAD for finding in findings)
    return Exit.UNUSABLE if bad else Exit.OK
