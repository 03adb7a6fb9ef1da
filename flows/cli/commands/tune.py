"""`modelmill tune`: find the fastest build of models on a device, or grade recorded sessions."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.quantity import parse_duration
from flows.cli.settings import OF_MEASURING, PLACES, SELECTION
from matrix.errors import Exit, NothingSelected, UsageError

if TYPE_CHECKING:
    from flows.cli.settings import Settings
    from flows.tune.batch import Order
    from flows.tune.record import Recorded, Trial
    from flows.tune.replay import Graded
    from flows.tune.tuning import Shown
    from state.reading import StateReader

_SELECTION = tuple(name for name in SELECTION if name not in {"only", "skip"})
_BUILDING = (
    "engine",
    "precision",
    "opset",
    "emulated",
    "runtimes",
    "allow_remote_code",
    "allow_pickle",
    "timeout",
    "memory",
)
_OF_FLEETS = ("package", "needs", "heartbeat")  # fmt: skip
_OF_NEW_ONES = ("space", "hypotheses", "name", "seed", "min_gain")
_MIN_GAIN = 5.0
"""Percent."""
REPORT = "report"


def add(parser: Parser) -> None:
    add = parser.add_argument
    add("what", nargs="*", metavar="MODEL|CATALOG",
        help="OWNER/NAME:TASK, or a catalog; `report NAME`: write the report of earlier tunings"
             " to --dest, or their sessions to --export")  # fmt: skip
    add("--resume", metavar="NAME", help="go on with tunings that were interrupted or failed")
    add("--replay", nargs="+", type=Path, metavar="FILE",
        help="grade what was measured elsewhere: exports, results.json, results.tsv, or folders of"
             " such files")  # fmt: skip
    add("--space", action="append", type=Path, default=[], metavar="FILE",
        help="hypotheses of your own (TOML) beside those that come with modelmill")  # fmt: skip
    add("--only", dest="hypotheses", nargs="+", default=[], metavar="H",
        help="try only these hypotheses; globs over their ids")  # fmt: skip
    add("--budget", type=_duration, metavar="TIME",
        help="the time for each model, for example 2h; default: as long as it takes")  # fmt: skip
    add("--min-gain", type=_percent, metavar="PERCENT",
        help="a smaller change of the latency counts as no difference; default 5%%")  # fmt: skip
    add("--name", metavar="NAME", help="a name for the tunings; default: the date and the catalog")
    add("--seed", type=int, metavar="N", help="decides the order of all sessions; default: random")
    add("--export", type=Path, metavar="FILE",
        help="write all sessions to a file that --replay grades anywhere")  # fmt: skip
    add("--dest", type=Path, metavar="FOLDER",
        help="folder for NAME.html, NAME.md and NAME.json: with report (default: the current one)"
             " or --replay (default: none is written)")  # fmt: skip
    add("--learn", action="store_true",
        help="with --replay: add what the sessions show to the knowledge base")  # fmt: skip
    add("--fleet", action="store_true",
        help="let the workers of a fleet do it: all of them build, those with --bench-machine and"
             " the device measure")  # fmt: skip
    add("--pool", default="modelmill", help="the fleet; default modelmill")
    add("--json", action="store_true", help="for machines")
    add_settings(parser, (*_SELECTION, *OF_MEASURING, *_BUILDING, *_OF_FLEETS, *PLACES))
    parser.set_defaults(run=_run)


def _percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 < value < 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not between 0% and 100%")
    return value


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(arguments: argparse.Namespace) -> Exit:
    given = [name for name in ("what", "resume", "replay") if getattr(arguments, name)]
    if len(given) != 1:
        hint = "for example modelmill tune demo --target mlas_cpu"
        if not given:
            raise UsageError("nothing to tune is given", hint=hint)
        raise UsageError("MODEL|CATALOG, --resume and --replay exclude each other", hint=hint)
    if arguments.fleet and (arguments.replay or arguments.what[:1] == [REPORT]):
        raise UsageError("--fleet makes tunings, and nothing else", hint="leave it out")
    settings = settings_of(arguments)
    if arguments.replay:
        if arguments.export:
            raise UsageError("--export does not go with --replay", hint="leave it out")
        return _replay(arguments, settings)
    if arguments.what[:1] == [REPORT]:
        return _report(arguments, settings)
    _check_words(arguments)
    if arguments.resume:
        _check_resume(arguments)
    elif not settings.target:
        raise UsageError("no target is given", hint="for example --target mlas_cpu")
    return (_tune_on_fleet if arguments.fleet else _tune)(arguments, settings)


def _check_words(arguments: argparse.Namespace) -> None:
    if len(arguments.what) > 1:
        more = " ".join(arguments.what[1:])
        raise UsageError(f"there is too much: {more}", hint="give one model or one catalog")
    for flag in ("dest", "learn"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag} does not go with a tuning", hint="leave it out")
    for flag in () if arguments.fleet else _OF_FLEETS:
        if getattr(arguments, flag) not in (None, []):
            raise UsageError(f"--{flag} is for tunings on a fleet", hint="add --fleet")


def _report(arguments: argparse.Namespace, settings: Settings) -> Exit:
    """Write the page of tunings, or all their sessions."""
    from flows.observe.tuning.document import document
    from flows.observe.tuning.page import write
    from flows.sweep.workspace import Workspace
    from flows.tune.batch import rows_of
    from flows.tune.record import recorded

    if len(arguments.what) != 2 or arguments.learn:
        raise UsageError("report takes the NAME of tunings", hint="and --dest or --export")
    name = arguments.what[1]
    with Workspace(settings).read_state() as state:
        rows_of(state, name)
        told = document(name, recorded(state, name))
        if arguments.export:
            _export(state, name, settings.path(str(arguments.export)))
    if arguments.json:
        print(json.dumps(told.to_json(), indent=1))
        return Exit.OK
    folder = settings.path(str(arguments.dest)) if arguments.dest else settings.cwd
    for path in write(told, folder):
        print(path)
    return Exit.OK


def _export(state: StateReader, name: str, path: Path) -> None:
    from flows.tune.exported import export
    from machine.disk import reason

    try:
        count = export(state, name, path)
    except OSError as error:
        text = f"{path} cannot be written: {reason(error)}"
        raise UsageError(text, hint="name another file with --export") from None
    _tell(f"{path} has {count} sessions; grade them with: modelmill tune --replay FILE")


def _check_resume(arguments: argparse.Namespace) -> None:
    """What a tuning compares, and how, is decided when it begins."""
    for name in (*_OF_NEW_ONES, *_SELECTION, *OF_MEASURING, "engine", "precision", "opset"):
        if getattr(arguments, name) not in (None, []):
            flag = {"hypotheses": "only"}.get(name, name.replace("_", "-"))
            raise UsageError(
                f"--{flag} is for new tunings", hint="a resume keeps what they began with"
            )


def _tune_on_fleet(arguments: argparse.Namespace, settings: Settings) -> Exit:
    from flows.fleet.tuning import order_tunings, resume_tunings
    from flows.sweep.workspace import Workspace

    pool, budget, as_json = arguments.pool, arguments.budget, arguments.json
    if arguments.resume:
        name = arguments.resume
        code = resume_tunings(settings, name, budget, pool, as_json=as_json)
    else:
        order = _order(arguments, settings)
        name, code = order_tunings(settings, order, budget, pool, as_json=as_json)
    if arguments.export:
        with Workspace(settings).read_state() as state:
            _export(state, name, settings.path(str(arguments.export)))
    return code


def _order(arguments: argparse.Namespace, settings: Settings) -> Order:
    from flows.tune.batch import Order

    return Order(
        what=arguments.what[0],
        name=arguments.name or "",
        space=tuple(settings.cwd / path for path in arguments.space),
        only=tuple(arguments.hypotheses),
        min_gain=arguments.min_gain or _MIN_GAIN,
        seed=arguments.seed,
    )


def _tune(arguments: argparse.Namespace, settings: Settings) -> Exit:
    from flows.sweep.workspace import Workspace
    from flows.tune.batch import begin, of_fleet, rows_of, work_on

    work = Workspace(settings)
    work.prepare()
    with work.open_state() as state:
        if arguments.resume:
            name = arguments.resume
            rows_of(state, name)
            if of_fleet(state, name) is not None:
                hint = f"modelmill tune --resume {name} --fleet"
                raise UsageError(f"the tuning {name} is one of a fleet", hint=hint)
        else:
            name = begin(settings, state, _order(arguments, settings))
        rows = rows_of(state, name)
        if not rows:
            raise NothingSelected("the selection leaves nothing to tune")
        shown = _shown(quiet=arguments.json)
        shown.line(f"tuning {name}: {len(rows)} model{'s'[: len(rows) > 1]}")
        try:
            found = work_on(settings, state, name, arguments.budget, shown)
        except KeyboardInterrupt:
            _tell(f"what is measured is kept; go on with: modelmill tune --resume {name}")
            raise
        if arguments.export:
            _export(state, name, settings.path(str(arguments.export)))
    return _told(arguments, settings, name, found)


def _told(
    arguments: argparse.Namespace, settings: Settings, name: str, found: list[Recorded]
) -> Exit:
    from flows.observe.tunings import tuning_lines
    from flows.tune.conclusion import champions_file
    from matrix.codec import to_json
    from matrix.trials import TuningStatus

    if arguments.json:
        print(json.dumps(to_json(found), indent=1))
    else:
        width = shutil.get_terminal_size((80, 24)).columns
        for one in found:
            print("\n".join(["", *tuning_lines(one, width)]))
        late = any(one.tuning.status is TuningStatus.OUT_OF_TIME for one in found)
        if any(one.champion for one in found):
            file = champions_file(settings)
            print(
                f"\n{file} has the champions; modelmill sweep CATALOG --champions FILE builds them"
            )
        if late:
            print(f"\nthe budget is used up; go on with: modelmill tune --resume {name}")
    failed = any(one.tuning.status is TuningStatus.FAILED for one in found)
    return Exit.CELLS_FAILED if failed or not found else Exit.OK


def _shown(*, quiet: bool) -> Shown:
    from flows.cli.activity import waiting_for
    from flows.cli.quantity import show_duration
    from flows.observe.tunings import trial_line
    from flows.tune.tuning import Shown
    from matrix.trials import Verdict

    if quiet:
        return Shown(
            lambda _line: None, lambda *_trial: None, lambda *_doing: None, lambda _text: None
        )
    width = shutil.get_terminal_size((80, 24)).columns

    now = [""]

    def doing(text: str, left: float) -> None:
        now[0] = f"{text}; about {show_duration(left)} left" if left else text
        waiting_for(now[0])

    def settled(one: Trial, place: str) -> None:
        if one.verdict is not Verdict.SKIPPED:
            print(trial_line(one, place, width), flush=True)

    return Shown(
        line=lambda text: print(text, flush=True),
        trial=settled,
        doing=doing,
        detail=lambda text: waiting_for(f"{now[0]}; {text}" if now[0] else text),
    )


def _tell(text: str) -> None:
    print(f"modelmill: {text}", file=sys.stderr, flush=True)


def _replay(arguments: argparse.Namespace, settings: Settings) -> Exit:
    from flows.tune.elsewhere import read_elsewhere, told_of
    from matrix.codec import to_json

    found = read_elsewhere(arguments.replay, arguments.min_gain)
    rows = [row for one in found for row in one.rows]
    if arguments.dest:
        from flows.observe.tuning.page import write

        for path in write(told_of(found), settings.path(str(arguments.dest))):
            _tell(f"wrote {path}")
    if arguments.learn:
        from flows.sweep.workspace import Workspace
        from flows.tune.learning import learn

        seen = [one for part in found for one in part.observations]
        lines, drafts = learn(Workspace(settings).knowledge, seen)
        _tell(f"learned: {lines} observations, {drafts} drafts")
    if arguments.json:
        print(json.dumps(to_json(rows), indent=1))
        return Exit.OK
    for model in dict.fromkeys(row.model for row in rows):
        _print(model, [row for row in rows if row.model == model])
    wrong = sum(bool(row.agreement) for row in rows)
    claims = f"{wrong} claim{'s' if wrong != 1 else ''} that the data do not support"
    print(f"{len(rows)} trial{'s' if len(rows) != 1 else ''}; {claims}")
    return Exit.OK


def _print(model: str, rows: list[Graded]) -> None:
    from flows.cli.table import render

    print(model)
    head = ("trial", "gain", "claimed", "its rule", "ours", "why")
    print(render(head, [_cells(row) for row in rows]))
    for row in rows:
        if row.agreement:
            print(f"  {row.trial}: {row.agreement}")
    print()


def _cells(row: Graded) -> tuple[str, str, str, str, str, str]:
    gained = "" if row.gain is None else f"{row.gain:+.1f} %"
    return row.trial, gained, row.claim, row.rule, str(row.verdict), row.why
