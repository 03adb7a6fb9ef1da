"""`modelmill verify`: verify a package that exists already."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.console import print_json
from flows.cli.settings import PLACES
from matrix.errors import Exit, UsageError

if TYPE_CHECKING:
    from workers.verify.verifier import Climbed

_MARK = {True: "pass", False: "FAIL", None: "-"}


def add(parser: Parser) -> None:
    parser.add_argument("what", help="a package folder, a package name, or MODEL:TASK@TARGET")
    parser.add_argument("version", nargs="?", help="with a package name: its version")
    parser.add_argument("--export", type=Path, help="the export's folder, to compare with")
    parser.add_argument("--stamp", dest="batch", help="with a cell: the batch it belongs to")
    parser.add_argument("--json", action="store_true", help="for machines")
    add_settings(parser, ("verify", "runtimes", "engine", *PLACES))
    parser.set_defaults(begins="preparing the verification")


def run(arguments: argparse.Namespace) -> Exit:
    from flows.packages.reverify import keep_evidence, opened_package
    from flows.sweep.engines import runtimes_of
    from matrix.digest import tree_digest
    from workers.verify.verifier import Verifier

    settings, what = settings_of(arguments), arguments.what
    if not arguments.version and "@" not in what and not (settings.cwd / what).is_dir():
        raise UsageError(
            f"'{what}' is no folder", hint="give PACKAGE VERSION, a folder or MODEL:TASK@TARGET"
        )
    export = settings.cwd / arguments.export if arguments.export else None
    version, batch = arguments.version, arguments.batch
    with (
        opened_package(settings, what, version, batch, export) as (own, subject),
        closing(Verifier(runtimes_of(own), own.verify)) as verifier,
    ):
        climbed, tree = verifier.climb(subject), tree_digest(subject.files)
    keep_evidence(settings, tree, climbed)
    if arguments.json:
        print_json({"cell": climbed.claim.cell, "tree": tree, **climbed.to_json()})
    else:
        print("\n".join(_lines(climbed, tree)))
    return Exit.CELLS_FAILED if climbed.failed else Exit.OK


def _lines(climbed: Climbed, tree: str) -> list[str]:
    lines = [f"{climbed.claim.cell}  {climbed.claim.precision}  tree {tree[:16]}"]
    lines += [f"  {_MARK[one.passed]:<4}  {one.name}: {one.detail}" for one in climbed.rungs]
    for ran in climbed.observed.runs:
        taken, every = ran.taken()
        own = ", the target's own" if ran.own else ""
        lines.append(
            f"  ran on {ran.runtime.name}{own}: {ran.runtime.version}, {taken} of {every} nodes"
        )
    lines += [
        f"  not run on {one.provider} {one.device}: {one.why}" for one in climbed.observed.missing
    ]
    reached = "reached" if not climbed.failed else "not reached"
    return [*lines, f"level {climbed.level}: {reached}"]
