"""`modelmill trace`: where the time of a model goes, operator by operator."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Arguments, Parser, add_settings, refuse
from flows.cli.commands.bench import add_subject, choice_of, progress_of
from flows.output.console import print_json, tell
from flows.settings.settings import PLACES
from matrix.errors import Exit, UsageError

if TYPE_CHECKING:
    from workers.measure.trace.result import Trace

LEVELS = ("basic", "detail")
_NUMBERS = {
    "warmup": (10, 0, 100_000, "runs that are not counted; default 10"),
    "iterations": (100, 1, 100_000, "runs that are counted; default 100"),
    "threads": (0, 0, 4096, "threads of the runtime; 0 (default): the runtime decides"),
    "top-k": (5, 1, 10_000, "how many operators are shown; default 5"),
}
"""Flags with default, least, most and help."""
_SETTINGS = (
    "engine", "runtimes", "allow_ep_download", "emulated", "timeout", "memory", "package",
    "tries", "publish_timeout", "key",
)  # fmt: skip


def add(parser: Parser) -> None:
    # fmt: off
    add_subject(parser, required=False)
    add = parser.add_argument
    add("--level", choices=LEVELS, default="basic",
        help="detail adds memory traffic (default: basic)")
    for name, (value, _least, _most, text) in _NUMBERS.items():
        # The settings of benchmarks have some of these names, and other defaults.
        add(f"--{name}", dest=_dest(name), type=int, default=value, metavar="N", help=text)
    add("-o", "--output", metavar="DIR", help="new folder for trace.json and the profiles")
    add("--html", metavar="FILE", help="also write a page with all operators")
    add("--against", nargs="+", metavar="OTHER",
        help="show which operators make the difference to another model or trace.json")
    add("--publish", action="store_true",
        help="with PACKAGE VERSION: publish the trace as a record that names the package by digest")
    add("--parse", metavar="CSV", help="read a profile of QNN that was made elsewhere")
    add("--qhas", metavar="JSON", help="with --parse: the summary of QNN's profile viewer")
    add("--model", metavar="MODEL.onnx", help="with --parse: the model, for the names of its nodes")
    add("--wait", action="store_true",
        help="wait until nothing else is built or measured on this machine")
    add_settings(parser, (*_SETTINGS, *PLACES), as_json=True)
    # fmt: on


def run(arguments: Arguments) -> Exit:
    from flows.trace.table import lines as trace_lines
    from flows.trace.traces import prepare, publish_trace

    _check(arguments)
    settings = arguments.settings
    output = settings.cwd / arguments.output if arguments.output else None
    if output:
        prepare(output)
    parsed = [_parsed(arguments, output)] if arguments.parse else []
    found = []
    for trace in parsed or _found(arguments, arguments.what, output):
        found.append(trace)
        _print(arguments, partial(trace_lines, trace))
    # Nothing of what is compared with goes to the output.
    others = list(_found(arguments, arguments.against or [], None))
    told = []
    for trace in found:
        other = _same_graph(trace, others)
        told.append(_compared(trace, other, arguments) if arguments.against else trace.to_json())
        if arguments.html:
            _write_page(settings.cwd / arguments.html, trace, other, several=len(found) > 1)
    for trace in found if arguments.publish else ():
        if trace.usable:
            package, version = arguments.what
            tell("published " + " ".join(publish_trace(settings, package, version, trace)))
    if arguments.json:
        print_json(told)
    usable = all(trace.usable for trace in (*found, *others))
    return Exit.OK if usable else Exit.CELLS_FAILED


def _found(arguments: Arguments, words: Sequence[str], output: Path | None) -> Iterator[Trace]:
    from flows.measure.results import keep, trace_rows
    from flows.trace.traces import kept_trace

    kept = [kept_trace(arguments.settings.cwd / word) for word in words]
    if all(trace is not None for trace in kept):
        yield from filter(None, kept)
        return
    for trace in _traced(arguments, words, output):
        keep(arguments.settings, trace_rows(trace), "the trace", tell)
        yield trace


def _same_graph(trace: Trace, others: Sequence[Trace]) -> Trace | None:
    """Of the others, the trace of the same graph of a model."""
    if len(others) == 1:
        return others[0]
    same = (one for one in others if one.metadata.component == trace.metadata.component)
    return next(same, None)


def _compared(trace: Trace, other: Trace | None, arguments: Arguments) -> dict[str, object]:
    from flows.trace.difference import difference, lines

    if other is None:
        part = trace.metadata.component or "the model"
        raise UsageError(f"there is no trace of {part} to compare with", hint="name the same model")
    found = difference(before=other, after=trace)
    if not arguments.json:
        print(f"before: {other.metadata.model}; after: {trace.metadata.model}")
    _print(arguments, partial(lines, found))
    return {"trace": trace.to_json(), "against": other.to_json(), "difference": found}


def _write_page(dest: Path, trace: Trace, other: Trace | None, *, several: bool) -> None:
    from flows.trace.traces import write
    from matrix.slugs import slug

    if several:
        part = slug(trace.metadata.component or trace.metadata.model)
        dest = dest.with_name(f"{dest.stem}-{part}{dest.suffix}")
    write(trace, dest, other)
    tell(f"wrote {dest}")


def _dest(name: str) -> str:
    return f"trace_{name.replace('-', '_')}"


def _check(arguments: Arguments) -> None:
    """Raise `UsageError` for arguments that do not go together."""
    for name, (_value, least, most, _text) in _NUMBERS.items():
        given = getattr(arguments, _dest(name))
        wrong = not least <= given <= most
        refuse((wrong, f"--{name}: {given} is out of range", f"{least} to {most}"))
    parse, what = arguments.parse, arguments.what
    example = "for example modelmill trace model.onnx --target mlas_cpu"
    publish, version = arguments.publish, len(what) == 2 and not parse
    published = "modelmill trace PACKAGE VERSION --publish"
    refuse(
        (parse and what, "--parse reads a profile, and runs no model", "give one of the two"),
        (not parse and not what, "nothing to trace is given", example),
        (publish and not version, "--publish needs a published version", published),
        (arguments.qhas and not parse, "--qhas goes with --parse", "--parse profile.csv"),
        (arguments.model and not parse, "--model goes with --parse", "--parse profile.csv"),
    )


def _print(arguments: Arguments, lines: Callable[[int, int], Iterable[str]]) -> None:
    """Print a table of so many operators in so many columns."""
    if not arguments.json:
        width = shutil.get_terminal_size((100, 24)).columns
        print("\n".join([*lines(arguments.trace_top_k, width), ""]), flush=True)


def _traced(arguments: Arguments, words: Sequence[str], output: Path | None) -> Iterator[Trace]:
    from flows.measure.subjects import finding
    from flows.trace.traces import keep
    from workers.host.watch import Watching
    from workers.measure.quiet import quiet
    from workers.measure.trace.operators import Window
    from workers.measure.trace.tracer import Plan, Tracer
    from workers.measure.trace.viewer import find_viewer

    window = Window(arguments.trace_warmup, arguments.trace_iterations)
    plan = Plan(arguments.level, window, arguments.trace_threads)
    with finding(arguments.settings, plan.threads) as finder:
        subjects = finder.find(words, choice_of(arguments))
        tracer = Tracer(
            finder.runtimes,
            lambda: find_viewer(os.environ.get("QNN_SDK_ROOT")),
            Watching(arguments.settings.timeout, progress=progress_of(arguments)),
        )
        pairs = [(at, one, graph) for at, one in enumerate(subjects, 1) for graph in one.graphs]
        with quiet("a trace", wait=arguments.wait, told=tell):
            for at, subject, graph in pairs:
                number = str(at) if len(subjects) > 1 else ""
                name = "-".join(filter(None, (number, graph.component))) if len(pairs) > 1 else ""
                dest = output and output / re.sub(r"[^\w-]", "_", name)
                with finder.store.scratch.borrow("trace") as folder:
                    trace = tracer.trace(subject, graph, plan, folder)
                    made = {kind: folder / file for kind, file in trace.artifacts.items()}
                    yield keep(trace, made, dest)


def _parsed(arguments: Arguments, output: Path | None) -> Trace:
    from flows.measure.subjects import finding
    from flows.trace.traces import keep
    from workers.measure.trace.tracer import graph_of, trace_of

    given = (arguments.parse, arguments.qhas, arguments.model)
    csv, qhas, model = (arguments.settings.cwd / name if name else None for name in given)
    for file in filter(None, (csv, qhas, model)):
        if not file.is_file():
            raise UsageError(f"there is no file {file}")
    assert csv is not None
    graph = None
    if model is not None:
        with finding(arguments.settings) as finder:
            graph = graph_of(finder.runtimes, model)
    trace = trace_of(model.name if model else arguments.parse, csv, qhas, graph)
    files = {"profile": csv, **({"qhas": qhas} if qhas else {})}
    return keep(trace, files, output)
