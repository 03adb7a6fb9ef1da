"""`modelmill verify`: verify a package that exists already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.console import print_result
from flows.settings.settings import PLACES
from matrix.errors import Exit, UsageError

if TYPE_CHECKING:
    from workers.verify.verifier import Climbed

_MARK = {True: "pass", False: "FAIL", None: "-"}


def add(parser: Parser) -> None:
    add = parser.add_argument
    add("what", help="a package folder, a package name, or MODEL:TASK@TARGET")
    add("version", nargs="?", help="with a package name: its version")
    add("--export", type=Path, help="the folder of the export to compare with")
    add("--stamp", dest="batch", help="with a cell: the batch it belongs to")
    add_settings(
        parser, ("verify", "runtimes", "allow_ep_download", "engine", "key", *PLACES), as_json=True
    )
    parser.set_defaults(begins="preparing the verification")


def run(arguments: Arguments) -> Exit:
    from flows.packages.builder import verifying
    from flows.packages.reverify import keep_evidence, opened_package
    from matrix.digest import tree_digest

    settings, what, version = arguments.settings, arguments.what, arguments.version
    if not version and "@" not in what and not (settings.cwd / what).is_dir():
        hint = "give PACKAGE VERSION, a folder or MODEL:TASK@TARGET"
        raise UsageError(f"there is no folder '{what}'", hint=hint)
    export = settings.cwd / arguments.export if arguments.export else None
    opened = opened_package(settings, what, version, arguments.batch, export)
    with opened as (own, subject), verifying(own) as verifier:
        climbed, tree = verifier.climb(subject), tree_digest(subject.files)
    keep_evidence(settings, tree, climbed)
    document = {"cell": climbed.claim.cell, "tree": tree, **climbed.to_json()}
    print_result(arguments, document, _lines(climbed, tree))
    return Exit.CELLS_FAILED if climbed.failed else Exit.OK


def _lines(climbed: Climbed, tree: str) -> list[str]:
    from workers.verify.ladder.observed import took

    lines = [f"{climbed.claim.cell}  {climbed.claim.precision}  tree {tree[:16]}"]
    lines += [f"  {_MARK[one.passed]:<4}  {one.name}: {one.detail}" for one in climbed.rungs]
    for ran in climbed.observed.runs:
        own = ", the target's own" if ran.own else ""
        share = took(ran.to_json())
        lines.append(f"  ran on {ran.runtime.name}{own}: {ran.runtime.version}; it {share}")
    missing = climbed.observed.missing
    lines += [f"  not run on {one.provider} {one.device}: {one.why}" for one in missing]
    reached = "reached" if not climbed.failed else "not reached"
    return [*lines, f"level {climbed.level}: {reached}"]
