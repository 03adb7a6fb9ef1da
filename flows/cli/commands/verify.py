"""`modelmill verify`: verify a package that exists already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.arguments import Arguments, Parser, add_settings, refuse
from flows.output.console import print_json, print_result, tell
from flows.settings.settings import PLACES
from matrix.codec import to_json
from matrix.errors import Exit, UsageError

if TYPE_CHECKING:
    from workers.verify.verifier import Climbed

_SETTINGS = (
    "target", "model", "only", "skip", "verify", "runtimes", "allow_ep_download", "engine",
    "package", "key", *PLACES,
)  # fmt: skip
_MARK = {True: "pass", False: "FAIL", None: "-"}


def add(parser: Parser) -> None:
    add = parser.add_argument
    add("what", nargs="?", help="a package folder, a package name, or MODEL:TASK@TARGET")
    add("version", nargs="?", help="with a package name: its version")
    add("--export", type=Path, help="the folder of the export to compare with")
    text = "with a cell: the batch it belongs to; alone: verify again what it has published"
    add("--stamp", dest="batch", help=text)
    add_settings(parser, _SETTINGS, as_json=True)
    parser.set_defaults(begins="preparing the verification")


def run(arguments: Arguments) -> Exit:
    from flows.packages.builder import verifying
    from flows.packages.reverify import keep_evidence, opened_package
    from matrix.digest import tree_digest

    settings, what, version = arguments.settings, arguments.what, arguments.version
    if what is None:
        nothing = "no package is given", "or --stamp for all of a batch"
        refuse(
            (arguments.batch is None, *nothing),
            (arguments.export, "--export is for one package", ""),
        )
        return _batch(arguments)
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


def _batch(arguments: Arguments) -> Exit:
    """Everything that a batch has published, on the providers of this machine."""
    from collections import Counter

    from flows.packages.reverify import verified_again

    rows, failed = list[dict[str, Any]](), False
    for cell, climbed, history in verified_again(arguments.settings, arguments.batch, tell):
        failed = failed or bool(climbed.failed)
        trend = history.trend if history else "not run on its own provider"
        rows.append({"cell": cell.id, "tree": cell.tree, "trend": trend,
                     "verdicts": to_json(history), **climbed.to_json()})  # fmt: skip
        if not arguments.json:
            print(f"{cell.id}  {history or trend}", flush=True)
    if arguments.json:
        print_json(rows)
    else:
        counts = Counter(str(row["trend"]) for row in rows)
        print(", ".join(f"{trend}: {count}" for trend, count in counts.items()))
    return Exit.CELLS_FAILED if failed else Exit.OK


def _lines(climbed: Climbed, tree: str) -> list[str]:
    from workers.verify.ladder.levels import took

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
