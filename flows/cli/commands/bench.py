"""`modelmill bench`: how fast models run on a runtime of this machine."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.settings import OF_MEASURING, PLACES
from matrix.errors import Exit, UsageError

if TYPE_CHECKING:
    from flows.packages.measured import Choice, Finder
    from workers.measure.result import Protocol
    from workers.measure.running import Driver

_MOST_DIMENSIONS = 16


def add(parser: Parser) -> None:
    add_subject(parser)
    parser.add_argument(
        "--against",
        nargs="+",
        metavar="OTHER",
        help="compare with this one, in turns, and say whether it is faster or slower",
    )
    add = parser.add_argument
    add("--seed", type=int, metavar="N", help="of the order of a comparison; default: random")
    add("--wait", action="store_true", help="wait until no build of this machine disturbs")
    add("--json", action="store_true", help="for machines")
    add_settings(parser, (*OF_MEASURING, "engine", "runtimes", "timeout", "memory", *PLACES))
    parser.set_defaults(run=run)


def add_subject(parser: Parser, *, required: bool = True) -> None:
    """The arguments that say what is measured, where, and on which input values."""
    add = parser.add_argument
    add(
        "what",
        nargs="+" if required else "*",
        help="PACKAGE VERSION, folders, MODEL:TASK@TARGET or .onnx files",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--target", dest="on_target", help="default: the target of the package")
    where.add_argument("--profile", dest="on_profile", help="a device profile, with its options")
    add("--stamp", dest="batch", help="with a cell: the batch it belongs to")
    add(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=1x128",
        help="with .onnx files: the shape of an input; open dimensions are 1 otherwise",
    )
    add("--inputs", metavar="FILE", help="with .onnx files: input values (.npz or .jsonl)")


def choice_of(arguments: argparse.Namespace) -> Choice:
    """What the user decides beside the names. Raises `UsageError`."""
    from flows.packages.measured import Choice

    return Choice(
        target=arguments.on_target,
        profile=arguments.on_profile,
        batch=arguments.batch,
        shapes=shapes_of(arguments.shape),
        inputs=Path(arguments.inputs) if arguments.inputs else None,
    )


def shapes_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`INPUT=1x128` -> the shape of each input. Raises `UsageError`."""
    return dict(map(_shape, texts))


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = text.rpartition("=")
    parts = sizes.split("x")
    right = all(part.isascii() and part.isdigit() and 0 < int(part) < 2**31 for part in parts)
    if not equals or not name or not right or len(parts) > _MOST_DIMENSIONS:
        raise UsageError(f"--shape: '{text}' is not INPUT=SIZES", hint="for example x=1x128")
    return name, tuple(map(int, parts))


def run(arguments: argparse.Namespace) -> Exit:
    from flows.packages.measured import finding
    from workers.measure.running import Driver

    settings = settings_of(arguments)
    protocol = settings.protocol
    protocol.check()
    choice = choice_of(arguments)
    if arguments.against and len(arguments.against) > 2:
        raise UsageError("--against takes one OTHER", hint="or PACKAGE VERSION")
    with finding(settings, protocol.threads) as finder:
        driver = Driver(finder.runtimes, settings.timeout, progress=_progress(arguments))
        if arguments.against:
            return _compare(arguments, finder, driver, choice, protocol)
        return _benchmark(arguments, finder, driver, choice, protocol)


def _benchmark(
    arguments: argparse.Namespace,
    finder: Finder,
    driver: Driver,
    choice: Choice,
    protocol: Protocol,
) -> Exit:
    from flows.observe.benchmarks import benchmark_lines
    from flows.packages.keeping import keep_benchmark
    from matrix.codec import to_json
    from workers.measure.benchmark import benchmark
    from workers.measure.quiet import quiet

    subjects = finder.find(arguments.what, choice)
    results = []
    with quiet("a benchmark", wait=arguments.wait, told=_tell):
        for subject in subjects:
            results.append(benchmark(driver, subject, protocol))
            keep_benchmark(finder.settings, results[-1], _tell)
            if not arguments.json:
                print("\n".join(benchmark_lines(results[-1])), flush=True)
    if arguments.json:
        print(json.dumps([{"emulated": one.emulated, **to_json(one)} for one in results], indent=1))
    return Exit.CELLS_FAILED if any(one.failed for one in results) else Exit.OK


def _compare(
    arguments: argparse.Namespace,
    finder: Finder,
    driver: Driver,
    choice: Choice,
    protocol: Protocol,
) -> Exit:
    from flows.observe.benchmarks import comparison_lines
    from flows.packages.keeping import keep_comparison
    from matrix.codec import to_json
    from workers.measure.comparison import compare
    from workers.measure.quiet import quiet

    this = finder.find(arguments.what, choice)
    other = finder.find(arguments.against, choice)
    if len(this) != 1 or len(other) != 1:
        raise UsageError("--against compares one model with one other", hint="name one of each")
    seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    with quiet("a comparison", wait=arguments.wait, told=_tell):
        found = compare(driver, this[0], other[0], protocol, seed)
    keep_comparison(finder.settings, found, _tell)
    if arguments.json:
        emulated = found.this.emulated or found.other.emulated
        print(json.dumps({"emulated": emulated, **to_json(found)}, indent=1))
    else:
        print("\n".join(comparison_lines(found)))
    return Exit.CELLS_FAILED if found.failed else Exit.OK


def _progress(arguments: argparse.Namespace) -> Any:
    from flows.cli.activity import waiting_for
    from machine.waits import untold

    return untold if arguments.json else waiting_for


def _tell(text: str) -> None:
    print(f"modelmill: {text}", file=sys.stderr, flush=True)
