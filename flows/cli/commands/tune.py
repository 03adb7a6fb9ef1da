"""`modelmill tune`: find the fastest build of models on a device, or grade recorded sessions."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Arguments, Parser, add_settings, refuse
from flows.output.console import print_json, print_result, tell
from flows.output.quantity import counted, parse_duration
from flows.settings.settings import OF_BUILDING, OF_MEASURING, PLACES, SELECTION
from matrix.errors import Exit, NothingSelected, UsageError

if TYPE_CHECKING:
    from flows.tune.batch import Order
    from flows.tune.exported import Graded
    from flows.tune.place import Shown
    from flows.tune.record import Recorded, Trial

_SELECTION = tuple(name for name in SELECTION if name not in {"only", "skip"})
_OF_FLEETS = ("package", "needs", "heartbeat")  # fmt: skip
_OF_NEW_ONES = ("space", "hypotheses", "name", "seed", "min_gain")
_OF_REPORT = "and --dest or --export"
_MIN_GAIN = 5.0
"""Percent."""
REPORT = "report"


def add(parser: Parser) -> None:
    # fmt: off
    add = parser.add_argument
    add("what", nargs="*", metavar="MODEL|CATALOG",
        help="OWNER/NAME:TASK, or a catalog; `report NAME`: write the report of earlier tunings"
             " to --dest, or their sessions to --export")
    add("--resume", metavar="NAME", help="continue tunings that were interrupted or failed")
    add("--replay", nargs="+", type=Path, metavar="FILE",
        help="judge exported tunings again, from their sessions")
    add("--space", action="append", type=Path, default=[], metavar="FILE",
        help="your own hypotheses (TOML), in addition to those that come with modelmill")
    add("--only", dest="hypotheses", nargs="+", default=[], metavar="H",
        help="try only these hypotheses; globs over their ids")
    add("--budget", type=parse_duration, metavar="TIME",
        help="the time for each model, for example 2h; default: no limit")
    add("--min-gain", type=_percent, metavar="PERCENT",
        help="a smaller change of the latency counts as no difference; default 5%%")
    add("--name", metavar="NAME", help="a name for the tunings; default: the date and the catalog")
    add("--seed", type=int, metavar="N", help="seed for the order of all sessions; default: random")
    add("--export", type=Path, metavar="FILE",
        help="write all sessions to a file that --replay judges again, anywhere")
    add("--dest", type=Path, metavar="FOLDER",
        help="folder for NAME.html, NAME.md and NAME.json: with report (default: the current one)"
             " or for FILE-replayed.html, ... with --replay (default: none is written)")
    add("--learn", action="store_true",
        help="with --replay: add what the sessions show to the knowledge base")
    add("--fleet", action="store_true",
        help="have the workers of a fleet do it: all of them build, those with --bench-machine and"
             " the device measure")
    add("--pool", default="modelmill", help="name of the fleet; default modelmill")
    names = (*_SELECTION, *OF_MEASURING, *OF_BUILDING, "emulated", *_OF_FLEETS, *PLACES)
    add_settings(parser, names, as_json=True)
    # fmt: on


def _percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 < value < 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not between 0% and 100%")
    return value


def run(arguments: Arguments) -> Exit:
    given = [name for name in ("what", "resume", "replay") if getattr(arguments, name)]
    hint = "for example modelmill tune demo --target mlas_cpu"
    refuse(
        (not given, "nothing to tune is given", hint),
        (len(given) > 1, "MODEL|CATALOG, --resume and --replay exclude each other", hint),
    )
    what = arguments.what
    other = arguments.replay or what[:1] == [REPORT]
    refuse((arguments.fleet and other, "--fleet goes only with tunings", "leave it out"))
    if arguments.replay:
        refuse((arguments.export, "--export does not go with --replay", "leave it out"))
        return _replay(arguments)
    if what[:1] == [REPORT]:
        refuse((len(what) != 2 or arguments.learn, "report takes the NAME of tunings", _OF_REPORT))
        return _exported(arguments, what[1], _report(arguments, what[1]))
    refuse(
        (len(what) > 1, f"too many: {' '.join(what)}", "give one model or one catalog"),
        (arguments.dest, "--dest does not go with a tuning", "leave it out"),
        (arguments.learn, "--learn does not go with a tuning", "leave it out"),
    )
    for flag in () if arguments.fleet else _OF_FLEETS:
        wrong = getattr(arguments, flag) not in (None, [])
        refuse((wrong, f"--{flag} is for tunings on a fleet", "add --fleet"))
    if arguments.resume:
        _check_resume(arguments)
    elif not arguments.settings.target:
        raise UsageError("no target is given", hint="for example --target mlas_cpu")
    return _exported(arguments, *(_tune_on_fleet if arguments.fleet else _tune)(arguments))


def _exported(arguments: Arguments, name: str, code: Exit) -> Exit:
    """Write all sessions of the tunings to the file that was asked for."""
    from flows.tune.exported import export

    if arguments.export:
        path = arguments.settings.path(arguments.export)
        with arguments.work.read_state() as state:
            count = export(state, name, path)
        tell(f"{path} has {count} sessions; judge them again with: modelmill tune --replay FILE")
    return code


def _report(arguments: Arguments, name: str) -> Exit:
    from flows.tune.batch import rows_of
    from flows.tune.document import document
    from flows.tune.page import write
    from flows.tune.record import recorded

    with arguments.work.read_state() as state:
        rows_of(state, name)
        told = document(name, recorded(state, name))
    if arguments.json:
        print_json(told.to_json())
        return Exit.OK
    for path in write(told, arguments.settings.path(arguments.dest or "")):
        print(path)
    return Exit.OK


def _check_resume(arguments: Arguments) -> None:
    """What a tuning compares, and how, is decided when it begins."""
    for name in (*_OF_NEW_ONES, *_SELECTION, *OF_MEASURING, "engine", "precision", "opset"):
        flag = {"hypotheses": "only"}.get(name, name.replace("_", "-"))
        wrong = getattr(arguments, name) not in (None, [])
        refuse((wrong, f"--{flag} is for new tunings", "a resume keeps what they began with"))


def _tune_on_fleet(arguments: Arguments) -> tuple[str, Exit]:
    from flows.fleet.launch import order_tunings, resume_tunings

    settings, name, pool = arguments.settings, arguments.resume, arguments.pool
    budget, as_json = arguments.budget, arguments.json
    if name:
        return name, resume_tunings(settings, name, budget, pool, as_json=as_json)
    return order_tunings(settings, _order(arguments), budget, pool, as_json=as_json)


def _order(arguments: Arguments) -> Order:
    from flows.tune.batch import Order

    return Order(
        what=arguments.what[0],
        name=arguments.name or "",
        space=tuple(arguments.settings.cwd / path for path in arguments.space),
        only=tuple(arguments.hypotheses),
        min_gain=arguments.min_gain or _MIN_GAIN,
        seed=arguments.seed,
    )


def _tune(arguments: Arguments) -> tuple[str, Exit]:
    from flows.tune.batch import begin, of_fleet, rows_of, work_on

    settings = arguments.settings
    arguments.work.prepare()
    with arguments.work.open_state() as state:
        if arguments.resume:
            name = arguments.resume
            rows_of(state, name)
            if of_fleet(state, name) is not None:
                hint = f"modelmill tune --resume {name} --fleet"
                raise UsageError(f"the tuning {name} is one of a fleet", hint=hint)
        else:
            name = begin(settings, state, _order(arguments))
        rows = rows_of(state, name)
        if not rows:
            raise NothingSelected("the selection matches no cell to tune")
        shown = _shown(quiet=arguments.json)
        try:
            shown.line(f"tuning {name}: {counted(len(rows), 'model')}")
            found = work_on(settings, state, name, arguments.budget, shown)
        except KeyboardInterrupt:
            tell(f"the measurements are kept; continue with: modelmill tune --resume {name}")
            raise
    return name, _told(arguments, name, found)


def _told(arguments: Arguments, name: str, found: list[Recorded]) -> Exit:
    from flows.tune.conclusion import champions_file
    from flows.tune.document import report_lines
    from matrix.codec import to_json
    from matrix.trials import TuningStatus

    champions = champions_file(arguments.settings)
    print_result(arguments, to_json(found), report_lines(found, champions, name))
    failed = any(one.tuning.status is TuningStatus.FAILED for one in found)
    return Exit.CELLS_FAILED if failed or not found else Exit.OK


def _shown(*, quiet: bool) -> Shown:
    from flows.output.activity import waiting_for
    from flows.tune.document import trial_line
    from flows.tune.place import Shown
    from matrix.trials import Verdict

    if quiet:
        return Shown()
    width = shutil.get_terminal_size((80, 24)).columns

    def settled(one: Trial, place: str) -> None:
        if one.verdict is not Verdict.SKIPPED:
            print(trial_line(one, place, width), flush=True)

    return Shown(lambda text: print(text, flush=True), settled, waiting_for)


def _replay(arguments: Arguments) -> Exit:
    from flows.tune.exported import grade_files
    from matrix.codec import to_json

    found = grade_files(arguments.replay, arguments.min_gain)
    rows = [row for one in found for row in one.rows]
    if arguments.dest:
        from flows.tune.document import Document
        from flows.tune.page import write

        # By the files, so that one replay does not overwrite the pages of another.
        stems = list(dict.fromkeys(path.stem for path in arguments.replay))
        name = "-".join([*stems[:3], "replayed"])
        told = Document(name=name, tunings=tuple(one.part for one in found))
        for path in write(told, arguments.settings.path(arguments.dest)):
            tell(f"wrote {path}")
    if arguments.learn:
        from flows.tune.conclusion import learn

        seen = [one for part in found for one in part.observations]
        lines, drafts = learn(arguments.work.knowledge, seen)
        tell(f"learned: {lines} observations, {drafts} drafts")
    print_result(arguments, to_json(rows), _grades(rows))
    return Exit.OK


def _grades(rows: list[Graded]) -> Iterator[str]:
    from flows.output.table import render

    for model in dict.fromkeys(row.model for row in rows):
        own = [row for row in rows if row.model == model]
        yield model
        yield render(("trial", "gain", "recorded", "judged again", "why"), [*map(_cells, own)])
        yield ""
    changed = counted(sum(row.recorded != row.verdict for row in rows), "verdict")
    yield f"{counted(len(rows), 'trial')}; {changed} that the sessions do not support"


def _cells(row: Graded) -> tuple[str, str, str, str, str]:
    gained = "" if row.gain is None else f"{row.gain:+.1f} %"
    return row.trial, gained, row.recorded, str(row.verdict), row.why
