"""`modelmill trace`: where the time of a model goes, operator by operator."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.commands.bench import add_subject, choice_of
from flows.cli.settings import PLACES
from matrix.errors import Exit, UsageError

if TYPE_CHECKING:
    from flows.cli.settings import Settings
    from workers.measure.subject import Graph, Subject
    from workers.measure.trace.result import Trace
    from workers.measure.trace.tracer import Plan, Tracer

LEVELS = ("basic", "detail")
_NUMBERS = {
    "warmup": (10, 0, 100_000, "runs before those that count; 10"),
    "iterations": (100, 1, 100_000, "runs that count; 100"),
    "threads": (0, 0, 4096, "default: as the runtime likes"),
    "top-k": (5, 1, 10_000, "how many operators are shown; 5"),
}
"""Flags with default, least, most and help."""
_SETTINGS = ("engine", "runtimes", "timeout", "memory", "package", "tries", "publish_timeout")


def add(parser: Parser) -> None:
    add_subject(parser, required=False)
    add = parser.add_argument
    add("--level", choices=LEVELS, default="basic", help="detail: memory traffic, where known")
    for name, (value, _least, _most, text) in _NUMBERS.items():
        # The settings of benchmarks have some of these names, and other defaults.
        add(f"--{name}", dest=_dest(name), type=int, default=value, metavar="N", help=text)
    add("-o", "--output", metavar="DIR", help="where trace.json and the profiles go")
    add("--html", metavar="FILE", help="also write a page with all operators")
    add(
        "--against",
        nargs="+",
        metavar="OTHER",
        help="say which operators make the difference to this one, or to a trace.json of it",
    )
    add(
        "--publish",
        action="store_true",
        help="of PACKAGE VERSION: publish the trace as a record that names the package by digest",
    )
    add("--parse", metavar="CSV", help="read a profile of QNN that was made elsewhere")
    add("--qhas", metavar="JSON", help="with --parse: the summary of QNN's profile viewer")
    add("--model", metavar="MODEL.onnx", help="with --parse: the model, for the names of its nodes")
    add("--wait", action="store_true", help="wait until no build of this machine disturbs")
    add("--json", action="store_true", help="for machines")
    add_settings(parser, (*_SETTINGS, *PLACES))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    from flows.packages.kept_traces import prepare

    _check(arguments)
    settings = settings_of(arguments)
    if arguments.output:
        prepare(settings.cwd / arguments.output)
    found = []
    for trace in _found(settings, arguments):
        found.append(trace)
        if not arguments.json:
            _print(trace, arguments.trace_top_k)
    others = _others(settings, arguments)
    told = []
    for trace in found:
        other = _same_graph(trace, others)
        told.append(_compared(trace, other, arguments) if arguments.against else trace.to_json())
        if arguments.html:
            _write_page(settings.cwd / arguments.html, trace, other, several=len(found) > 1)
    if arguments.publish:
        _publish(settings, arguments, found)
    if arguments.json:
        print(json.dumps(told, indent=1))
    usable = all(trace.usable for trace in (*found, *others))
    return Exit.OK if usable else Exit.CELLS_FAILED


def _found(settings: Settings, arguments: argparse.Namespace) -> Iterator[Trace]:
    from flows.packages.keeping import keep_trace
    from flows.packages.read_traces import kept_trace

    if arguments.parse:
        yield from _parsed(settings, arguments)
        return
    kept = [kept_trace(settings.cwd / word) for word in arguments.what]
    if all(trace is not None for trace in kept):
        yield from filter(None, kept)
        return
    for trace in _traced(settings, arguments):
        keep_trace(settings, trace, _tell)
        yield trace


def _others(settings: Settings, arguments: argparse.Namespace) -> list[Trace]:
    """The traces to compare with, made in the same way; nothing of them goes to the output."""
    if not arguments.against:
        return []
    given = {**vars(arguments), "what": arguments.against, "output": None, "parse": None}
    return list(_found(settings, argparse.Namespace(**given)))


def _same_graph(trace: Trace, others: Sequence[Trace]) -> Trace | None:
    """Of the others, the trace of the same graph of a model."""
    if len(others) == 1:
        return others[0]
    same = (one for one in others if one.metadata.component == trace.metadata.component)
    return next(same, None)


def _compared(
    trace: Trace, other: Trace | None, arguments: argparse.Namespace
) -> dict[str, object]:
    from flows.observe.trace.difference import difference
    from flows.observe.trace.text import lines

    if other is None:
        part = trace.metadata.component or "the model"
        raise UsageError(f"there is no trace of {part} to compare with", hint="name the same model")
    found = difference(trace, other)
    if not arguments.json:
        width = shutil.get_terminal_size((100, 24)).columns
        print(f"against {other.metadata.model}")
        print("\n".join([*lines(found, arguments.trace_top_k, width), ""]), flush=True)
    return {
        "trace": trace.to_json(),
        "against": other.to_json(),
        "difference": found.to_json(),
    }


def _publish(settings: Settings, arguments: argparse.Namespace, found: Sequence[Trace]) -> None:
    from flows.packages.trace_records import publish_trace

    package, version = arguments.what
    for trace in found:
        if trace.usable:
            _tell("published " + " ".join(publish_trace(settings, package, version, trace)))


def _write_page(dest: Path, trace: Trace, other: Trace | None, *, several: bool) -> None:
    from flows.observe.trace.page import write
    from matrix.slugs import slug

    if several:
        part = slug(trace.metadata.component or trace.metadata.model)
        dest = dest.with_name(f"{dest.stem}-{part}{dest.suffix}")
    write(trace, dest, other)
    _tell(f"wrote {dest}")


def _dest(name: str) -> str:
    return f"trace_{name.replace('-', '_')}"


def _check(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` for arguments that do not go together."""
    for name, (_value, least, most, _text) in _NUMBERS.items():
        given = getattr(arguments, _dest(name))
        if not least <= given <= most:
            raise UsageError(f"--{name}: {given} is out of range", hint=f"{least} to {most}")
    if arguments.parse and arguments.what:
        raise UsageError("--parse reads a profile, and runs no model", hint="leave one of both out")
    if not arguments.parse and not arguments.what:
        hint = "for example modelmill trace model.onnx --target mlas_cpu"
        raise UsageError("nothing to trace is given", hint=hint)
    if arguments.publish and (len(arguments.what) != 2 or arguments.parse):
        text = "--publish needs a published version"
        raise UsageError(text, hint="modelmill trace PACKAGE VERSION --publish")
    for name in ("qhas", "model"):
        if getattr(arguments, name) and not arguments.parse:
            raise UsageError(f"--{name} goes with --parse", hint="--parse profile.csv")


def _print(trace: Trace, top: int) -> None:
    from flows.observe.trace.table import lines

    width = shutil.get_terminal_size((100, 24)).columns
    print("\n".join([*lines(trace, top, width), ""]), flush=True)


def _traced(settings: Settings, arguments: argparse.Namespace) -> Iterator[Trace]:
    from flows.cli.activity import waiting_for
    from flows.packages.measured import finding
    from machine.waits import untold
    from workers.measure.quiet import quiet
    from workers.measure.trace.readings import Window
    from workers.measure.trace.tracer import Plan, Tracer
    from workers.measure.trace.viewer import find_viewer

    window = Window(arguments.trace_warmup, arguments.trace_iterations)
    plan = Plan(arguments.level, window, arguments.trace_threads)
    with finding(settings, plan.threads) as finder:
        subjects = finder.find(arguments.what, choice_of(arguments))
        tracer = Tracer(
            finder.runtimes,
            lambda: find_viewer(os.environ.get("QNN_SDK_ROOT")),
            settings.timeout,
            progress=untold if arguments.json else waiting_for,
        )
        several = len(subjects) > 1 or len(subjects[0].graphs) > 1
        with quiet("a trace", wait=arguments.wait, told=_tell):
            for subject in subjects:
                for graph in subject.graphs:
                    number = f"{subjects.index(subject) + 1}" if len(subjects) > 1 else ""
                    name = "-".join(filter(None, (number, graph.component)))
                    output = _output(settings, arguments, name if several else "")
                    with finder.store.scratch.borrow("trace") as folder:
                        yield _one(tracer, subject, graph, plan, folder, output)


def _one(
    tracer: Tracer, subject: Subject, graph: Graph, plan: Plan, folder: Path, output: Path | None
) -> Trace:
    from flows.packages.kept_traces import keep

    trace = tracer.trace(subject, graph, plan, folder)
    return keep(trace, {kind: folder / name for kind, name in trace.artifacts.items()}, output)


def _parsed(settings: Settings, arguments: argparse.Namespace) -> Iterator[Trace]:
    from flows.packages.kept_traces import keep
    from flows.packages.measured import finding
    from workers.measure.trace.elsewhere import Profile, read

    def path(name: str) -> Path | None:
        given = getattr(arguments, name)
        return settings.cwd / given if given else None

    csv, model = settings.cwd / arguments.parse, path("model")
    for file in filter(None, (csv, path("qhas"), model)):
        if not file.is_file():
            raise UsageError(f"there is no file {file}")
    profile = Profile(arguments.parse, csv, path("qhas"), model)
    if model is None:
        trace = read(profile, None)
    else:
        with finding(settings) as finder:
            trace = read(profile, finder.runtimes)
    files = {"profile": profile.csv, **({"qhas": profile.qhas} if profile.qhas else {})}
    yield keep(trace, files, _output(settings, arguments, ""))


def _output(settings: Settings, arguments: argparse.Namespace, name: str) -> Path | None:
    """`name`: of a component, as the package calls it."""
    if not arguments.output:
        return None
    return Path(settings.cwd / arguments.output / re.sub(r"[^\w-]", "_", name))


def _tell(text: str) -> None:
    print(f"modelmill: {text}", file=sys.stderr, flush=True)
