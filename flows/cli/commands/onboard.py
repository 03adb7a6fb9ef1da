"""`modelmill onboard`: a model becomes a catalog entry with proof."""

from __future__ import annotations

from pathlib import Path

from flows.cli.arguments import Arguments, Parser, add_settings
from flows.output.console import print_result, tell
from flows.settings.settings import OF_BUILDING, OF_MEASURING, PLACES
from machine.shell import shell_word
from matrix.errors import Exit
from matrix.verification import METRICS

_SETTINGS = (*OF_BUILDING, "target", "ep", "device", "memory_budget", *OF_MEASURING, *PLACES)


def add(parser: Parser) -> None:
    # fmt: off
    add = parser.add_argument
    add("what", metavar="MODEL", help="a Hub id, a folder or, with --catalog, the id of an entry")
    add("--task", dest="for_task", help="the task; required without --catalog")
    add("--catalog", metavar="FILE", help="take the entry from this catalog")
    add("--dest", type=Path, metavar="FOLDER",
        help="where the proof goes; default: onboarding/MODEL")
    add("--dataset", type=Path, metavar="FILE",
        help="samples for the task metric (.npz or .jsonl)")
    add("--metric", choices=METRICS, default=METRICS[0], help="the metric for the dataset")
    add("--note", action="append", default=[], metavar="TEXT",
        help="something that got in the way, for the report (repeatable)")
    add_settings(parser, _SETTINGS, as_json=True)
    parser.set_defaults(begins="preparing the onboarding")
    # fmt: on


def run(arguments: Arguments) -> Exit:
    from datetime import date

    from flows.onboard.coverage import lacking_lines
    from flows.onboard.entry import Wanted, default_folder
    from flows.onboard.onboarding import Onboarding
    from matrix.codec import to_json
    from matrix.entry import HUB_ID

    settings = arguments.settings
    settings.protocol.check()
    what, task, catalog = arguments.what, arguments.for_task, arguments.catalog
    wanted = Wanted(what, task, catalog, arguments.dataset, arguments.metric)
    if catalog is None and HUB_ID.fullmatch(what) and not (settings.cwd / what).is_dir():
        tell(f"there is no folder {what}: it is taken for an id of the Hub")
    where = arguments.dest or default_folder(what)
    work = Onboarding(wanted, settings.cwd / where, settings, tuple(arguments.note), tell)
    record = work.go(date.today())  # noqa: DTZ011 - the user's date
    typed = shell_word(str(where))
    lines = [
        f"{record.model}:{record.task}  effort: {record.effort}  goal: {record.goal or 'none'}",
        *(f"  {one.goal}  {one.verdict}: {one.why}" for one in record.tiers),
        *(f"  {text}" for text in lacking_lines(record.probe)),
        *([f"  {record.needless}"] if record.needless else []),
        f"report: {where / 'report.md'}; have it reviewed with: modelmill review {typed}",
    ]
    print_result(arguments, to_json(record), lines)
    return Exit.OK if record.goal else Exit.CELLS_FAILED
