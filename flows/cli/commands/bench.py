"""`modelmill bench`: how fast models run on a runtime of this machine."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Arguments, Parser, add_settings, refuse
from flows.output.activity import waiting_for
from flows.output.console import print_json, print_result, tell
from flows.settings.settings import OF_MEASURING, PLACES
from machine.waits import untold
from matrix.codec import to_json
from matrix.errors import Exit, UsageError

if TYPE_CHECKING:
    from flows.measure.subjects import Choice, Finder
    from workers.measure.benchmark import Driver
    from workers.measure.subject import Subject

_MOST_DIMENSIONS = 16


def add(parser: Parser) -> None:
    # fmt: off
    add_subject(parser, required=False)
    add = parser.add_argument
    add("--against", nargs="+", metavar="OTHER",
        help="compare with another model, in turns, and say which is faster")
    add("--seed", type=int, metavar="N",
        help="seed for the order of turns in a comparison; default: random")
    add("--wait", action="store_true",
        help="wait until nothing else is built or measured on this machine")
    names = ("engine", "runtimes", "allow_ep_download", "emulated", "timeout", "memory", "key",
             "model", "only", "skip", "package", *PLACES)
    add_settings(parser, (*OF_MEASURING, *names), as_json=True)
    # fmt: on


def add_subject(parser: Parser, *, required: bool = True) -> None:
    """The arguments that say what is measured, where, and on which input values."""
    # fmt: off
    add, where = parser.add_argument, parser.add_mutually_exclusive_group().add_argument
    add("what", nargs="+" if required else "*",
        help="PACKAGE VERSION, folders, MODEL:TASK@TARGET or .onnx files")
    where("--target", dest="on_target",
          help="target to measure on; default: that of the package")
    where("--profile", dest="on_profile",
          help="a device profile to measure on, with its options")
    text = "with a cell: the batch it belongs to; bench, alone: all that it has published"
    add("--stamp", dest="batch", help=text)
    add("--shape", action="append", default=[], metavar="INPUT=1x128",
        help="with .onnx files: the shape of an input; other dynamic dimensions get usual sizes")
    add("--inputs", metavar="FILE", help="with .onnx files: input values (.npz or .jsonl)")
    # fmt: on


def choice_of(arguments: Arguments) -> Choice:
    """What the user decides beside the names. Raises `UsageError`."""
    from flows.measure.subjects import Choice

    return Choice(
        target=arguments.on_target,
        profile=arguments.on_profile,
        batch=arguments.batch,
        shapes=shapes_of(arguments.shape),
        inputs=Path(arguments.inputs) if arguments.inputs else None,
    )


def shapes_of(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The shape of each input, written `INPUT=1x128`. Raises `UsageError`."""
    found = {}
    for text in texts:
        name, _equals, sizes = text.rpartition("=")
        parts = sizes.split("x")
        right = all(part.isascii() and part.isdigit() and 0 < int(part) < 2**31 for part in parts)
        if not name or not right or len(parts) > _MOST_DIMENSIONS:
            raise UsageError(f"--shape: '{text}' is not INPUT=SIZES", hint="for example x=1x128")
        found[name] = tuple(map(int, parts))
    return found


def progress_of(arguments: Arguments) -> Callable[[str], None]:
    """What shows a measurement's progress: nothing where programs read the output."""
    return untold if arguments.json else waiting_for


def run(arguments: Arguments) -> Exit:
    from flows.measure.subjects import finding
    from workers.host.watch import Watching
    from workers.measure.benchmark import Driver
    from workers.measure.quiet import quiet

    settings = arguments.settings
    protocol, choice = settings.protocol, choice_of(arguments)
    protocol.check()
    if not arguments.what:
        refuse(
            (arguments.batch is None, "no model is given", "or --stamp for all of a batch"),
            (arguments.against, "--against compares two models", "name the other one"),
        )
    others = arguments.against or []
    refuse((len(others) > 2, "--against takes one OTHER", "or PACKAGE VERSION"))
    with finding(settings, protocol.threads) as finder:
        watching = Watching(settings.timeout, progress=progress_of(arguments))
        driver = Driver(finder.runtimes, watching)
        named = finder.find(arguments.what, choice) if arguments.what else []
        against = finder.find(others, choice) if others else []
        if against and (len(named), len(against)) != (1, 1):
            text = "--against compares one model with one other"
            raise UsageError(text, hint="name one of each")
        what = "a comparison" if against else "a benchmark"
        with quiet(what, wait=arguments.wait, told=tell):
            if against:
                return _compare(arguments, driver, named[0], against[0])
            subjects = named or _published(arguments, finder, choice)
            return _benchmark(arguments, driver, subjects)


def _published(arguments: Arguments, finder: Finder, choice: Choice) -> Iterator[Subject]:
    """What a batch has published for the providers of this machine, each when its turn comes."""
    from flows.packages.reverify import runnable

    cells, missing = runnable(arguments.settings, arguments.batch, finder.runtimes)
    for target, why in missing.items():
        tell(f"{target} is left out: {why}")
    for one in cells:
        try:
            yield finder.published(one.package, one.version, choice)
        except UsageError as error:
            tell(f"{one.id} is left out: {error.message}")


def _benchmark(arguments: Arguments, driver: Driver, subjects: Iterable[Subject]) -> Exit:
    from flows.measure.results import benchmark_lines, keep, rows_of
    from workers.measure.benchmark import benchmark

    results = []
    for subject in subjects:
        results.append(benchmark(driver, subject, arguments.settings.protocol))
        keep(arguments.settings, rows_of(results[-1]), "the benchmark", tell)
        if not arguments.json:
            print("\n".join(benchmark_lines(results[-1])), flush=True)
    if arguments.json:
        print_json([{"emulated": one.emulated, **to_json(one)} for one in results])
    return Exit.CELLS_FAILED if any(one.failed for one in results) else Exit.OK


def _compare(arguments: Arguments, driver: Driver, this: Subject, other: Subject) -> Exit:
    from flows.measure.results import compared_rows, comparison_lines, keep
    from workers.measure.comparison import compare

    seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    found = compare(driver, this, other, arguments.settings.protocol, seed)
    keep(arguments.settings, compared_rows(found), "the comparison", tell)
    emulated = found.this.emulated or found.other.emulated
    document = {"emulated": emulated, **to_json(found)}
    print_result(arguments, document, comparison_lines(found))
    return Exit.CELLS_FAILED if found.failed else Exit.OK
