"""`modelmill verify`: verify a package that exists already."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.settings import PLACES
from matrix.errors import Exit, UsageError

if TYPE_CHECKING:
    from flows.cli.settings import Settings
    from workers.verify.verifier import Climbed

_MARK = {True: "pass", False: "FAIL", None: "-"}


def add(parser: Parser) -> None:
    parser.add_argument("what", help="a package folder, a package name, or MODEL:TASK@TARGET")
    parser.add_argument("version", nargs="?", help="with a package name: its version")
    parser.add_argument("--export", type=Path, help="the export's folder, to compare with")
    parser.add_argument("--stamp", dest="batch", help="with a cell: the batch it belongs to")
    parser.add_argument("--json", action="store_true", help="for machines")
    add_settings(parser, ("verify", "runtimes", "engine", *PLACES))
    parser.set_defaults(run=run, begins="preparing the verification")


def run(arguments: argparse.Namespace) -> Exit:
    from flows.packages.reverify import keep_evidence

    settings = settings_of(arguments)
    climbed, tree = _climb(settings, arguments)
    keep_evidence(settings, tree, climbed)
    if arguments.json:
        print(json.dumps({"cell": climbed.claim.cell, "tree": tree, **climbed.to_json()}, indent=1))
    else:
        print("\n".join(_lines(climbed, tree)))
    return Exit.CELLS_FAILED if climbed.failed else Exit.OK


def _climb(settings: Settings, arguments: argparse.Namespace) -> tuple[Climbed, str]:
    from flows.packages import reverify as proving

    what: str = arguments.what
    folder = settings.cwd / what
    if arguments.version:
        return proving.prove_published(settings, what, arguments.version)
    if folder.is_dir():
        export: Path | None = arguments.export
        return proving.prove_folder(settings, folder, settings.cwd / export if export else None)
    if "@" not in what:
        raise UsageError(
            f"'{what}' is no folder", hint="give PACKAGE VERSION, a folder or MODEL:TASK@TARGET"
        )
    return proving.prove_cell(settings, what, arguments.batch)


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
