"""`modelmill compile`: models that open at once on a device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Arguments, Parser, add_detail, add_settings, refuse
from flows.output.console import print_result
from flows.output.table import render
from flows.settings.settings import PLACES, Settings
from machine.files import temporary_folder
from machine.waits import untold
from matrix.digest import MANIFEST
from matrix.errors import Exit, UsageError
from matrix.nearest import hint, quote
from matrix.profiles import BACKENDS
from matrix.slugs import slug
from matrix.vocabulary import PROVIDER_OPTIONS

if TYPE_CHECKING:
    from flows.compile.plans import Wanted
    from flows.compile.written import Written
    from matrix.model import Plan, Profile
    from workers.compile.files import Compiled
    from workers.runtimes.pool import Runtimes

_EXAMPLE = "modelmill compile model.onnx --profile htp73 -o compiled"
_VERSION = "0.0.0-"
_NO_SHARING = ("--share is for ONNX files", "give the files of the packages")
_SETTINGS = (
    "stamp", "target", "model", "only", "skip", "emulated", "verify", "timeout", "memory",
    "publish_timeout", "package", "jobs", "tries", "key", "allow_ep_download", *PLACES,
)  # fmt: skip


def add(parser: Parser) -> None:
    # fmt: off
    add = parser.add_argument
    add("what", nargs="*", metavar="WHAT",
        help="ONNX files, folders with ONNX files or pulled packages; "
             "or PACKAGE VERSION of the feed; or cells of the batch that --stamp names")
    add("--profile", action="append", default=[], metavar="PROFILE",
        help="the device profile to compile for, see --list (repeatable, or separated by commas)")
    add("-o", "--output", metavar="DIR",
        help="where the results go; without it, compiled packages are published")
    add("--share", action="store_true", help="compile all files into one context")
    add("--ep-option", action="append", default=[], metavar="K=V",
        help="an option of the execution provider, overrides the profile's; the last one wins")
    add("--embed", action="store_true", help="put the binary into the model file")
    add("--backend", choices=BACKENDS, help="how to compile; default: the profile's")
    add("--no-check", action="store_true", help="do not open and run the results")
    add("--overwrite", action="store_true", help="with -o: replace existing files")
    add("--list", action="store_true", help="list the profiles that this machine can compile for")
    add_settings(parser, _SETTINGS, as_json=True)
    add_detail(parser)
    # fmt: on


def run(arguments: Arguments) -> Exit:
    """Compile files, folders or what the feed has; or list the profiles."""
    from flows.compile.plans import Wanted, folder_plan

    settings = arguments.settings
    if arguments.list:
        return _list(arguments)
    words, stamp = arguments.what, settings.origin("stamp").startswith("flag")
    cells = [word for word in words if "@" in word and not Path(word).exists()]
    version = len(words) == 2 and words[1].startswith(_VERSION) and not Path(words[1]).exists()
    refuse((not (words or stamp), "no model is given", _EXAMPLE))
    if arguments.no_check:
        settings = replace(settings, verify="integrity")  # nothing is run
    wanted = Wanted(settings, _profiles(arguments, cells), tuple(cells))
    if stamp or cells or version:
        return _published(arguments, wanted, whole=stamp)
    refuse((not arguments.output, "no folder for the results is given", "-o DIR"))
    paths = [Path(word) for word in words]
    packages = [path for path in paths if (path / MANIFEST).is_file()]
    mixed = packages and len(packages) < len(paths)
    refuse(
        (mixed, "packages and files are not compiled together", "one after the other"),
        (packages and arguments.share, *_NO_SHARING),
    )
    if packages:
        made = [(folder_plan(folder, wanted), folder) for folder in packages]
        return _tell(arguments, _write(arguments, settings, made))
    return _tell(arguments, _compile_files(arguments, wanted, paths))


def _profiles(arguments: Arguments, cells: Sequence[str]) -> tuple[Profile, ...]:
    """Those that are named, also by cells, with the options of the command line over theirs."""
    from matrix.cellid import parse

    names = [name for text in arguments.profile for name in text.split(",") if name.strip()]
    names += [found for cell in cells if (found := parse(cell).profile)]
    refuse((not names, "no profile is given", "--profile NAME; --list shows all"))
    options = {}
    for text in arguments.ep_option:
        name, _equals, options[name] = text.partition("=")
        wrong = not name or "=" not in text
        refuse((wrong, f"--ep-option: '{text}' is not K=V", "for example vtcm_mb=8"))
    chosen = {profile.label: profile for profile in map(arguments.work.profiles().get, names)}
    for profile in chosen.values():
        provider = arguments.work.targets().get(profile.target).provider
        known = {*PROVIDER_OPTIONS.get(provider, options), *profile.options}
        for name in options:
            nearest = f"{hint(name, known)}; others go into a profile of your own: docs/compile.md"
            refuse((name not in known, f"{provider} has no option {quote(name)}", nearest))
    return tuple(
        replace(
            profile,
            options={**profile.options, **options},
            backend=arguments.backend or profile.backend,
            embed=arguments.embed or profile.embed,
        )
        for profile in chosen.values()
    )


def _published(arguments: Arguments, wanted: Wanted, *, whole: bool) -> Exit:
    """What the feed has: published as compiled cells, or written into a folder."""
    from flows.compile.plans import last_stamp, plans_of, publish_compiled

    settings, words, cells = wanted.settings, arguments.what, wanted.asked
    replaces = arguments.overwrite and not arguments.output
    mixed, others = cells and len(cells) < len(words), whole and words and not cells
    refuse(
        (arguments.share, *_NO_SHARING),
        (replaces, "a published version is never replaced", "--overwrite goes with -o"),
        (mixed, "cells and files are not compiled together", "one after the other"),
        (others, "--stamp takes cells of the batch", "or give only PACKAGE VERSION"),
    )
    feed = arguments.work.open_feed()
    if whole or cells:
        stamp = settings.stamp if whole and settings.stamp else last_stamp(settings)
        plans = plans_of(feed, wanted, wanted.of_stamp(feed, stamp), slug(stamp))
    else:
        plans = plans_of(feed, wanted, wanted.of_versions(feed, *words), None)
    if arguments.output:
        return _tell(arguments, _write(arguments, settings, [(plan, None) for plan in plans]))
    worst = Exit.OK
    for plan in plans:
        code = publish_compiled(plan, settings, feed, as_json=arguments.json)
        worst = max(worst, code)
        if code not in {Exit.OK, Exit.CELLS_FAILED}:
            return code  # an interrupt, a login or a feed that ends one batch ends them all
    return worst


def _write(
    arguments: Arguments, settings: Settings, made: Iterable[tuple[Plan, Path | None]]
) -> Iterator[Written]:
    """Plans into the output folder, each from the folder of a package or, without one, the feed."""
    from flows.compile.written import write_packages

    progress = _progress(arguments)
    for plan, source in made:
        yield from write_packages(
            plan, settings, Path(arguments.output), source, arguments.overwrite, progress
        )


def _progress(arguments: Arguments) -> Callable[[str], None]:
    """Tells people what is being done."""
    return untold if arguments.json else partial(print, file=sys.stderr, flush=True)


def _tell(arguments: Arguments, results: Iterable[Compiled | Written]) -> Exit:
    """Print what became of everything."""
    from flows.compile.written import result_lines, result_to_json

    done = list(results)
    print_result(arguments, [result_to_json(one) for one in done], result_lines(done))
    return Exit.CELLS_FAILED if any(one.error for one in done) else Exit.OK


def _compile_files(
    arguments: Arguments, wanted: Wanted, paths: Sequence[Path]
) -> Iterator[Compiled]:
    from workers.compile.devices import runtime_for
    from workers.compile.files import FileCompiler
    from workers.host.watch import Watching
    from workers.runtimes.runtime import Missing

    settings = wanted.settings
    if len(wanted.profiles) > 1:
        raise UsageError("files are compiled for one profile", hint="one after the other")
    (profile,) = wanted.profiles
    target = arguments.work.targets().get(profile.target)
    with _runtimes(settings) as (runtimes, folder):
        runtime = runtime_for(runtimes, profile, target, emulated=settings.emulated)
        if isinstance(runtime, Missing):
            text = f"{profile.label} cannot be made here: {runtime.why}"
            raise UsageError(text, hint=runtime.hint)
        compiler = FileCompiler(
            runtimes,
            folder,
            profile=profile,
            runtime=runtime,
            dest=Path(arguments.output),
            share=arguments.share,
            check=not arguments.no_check,
            overwrite=arguments.overwrite,
            watching=Watching(settings.timeout, progress=_progress(arguments)),
        )
        yield from compiler.run(paths)


@contextmanager
def _runtimes(settings: Settings) -> Iterator[tuple[Runtimes, Path]]:
    """The runtimes of this machine, and a private folder; nothing stays of either."""
    from flows.settings.engines import runtimes_of
    from workers.host.watch import HostLimits

    limits = HostLimits(memory=settings.memory or 0)
    with temporary_folder("modelmill-compile-") as name:
        logs = name / "logs"
        logs.mkdir()
        with closing(runtimes_of(settings, limits, log_dir=logs)) as runtimes:
            yield runtimes, name


def _list(arguments: Arguments) -> Exit:
    from workers.compile.devices import available
    from workers.runtimes.runtime import Missing, Runtime

    work = arguments.work
    with _runtimes(work.settings) as (runtimes, _folder):
        found = available(runtimes, work.profiles(), work.targets())
    rows, table = [], []
    for profile, here in found:
        runtime = here if isinstance(here, Runtime) else None
        rows.append(
            {
                "profile": profile.label,
                "target": profile.target,
                "backends": list(BACKENDS) if runtime else [],
                "default": profile.backend,
                "runtime": runtime.to_json() if runtime else None,
                "why": here.why if isinstance(here, Missing) else None,
                "next": (here.hint or None) if isinstance(here, Missing) else None,
            }
        )
        mark = ", with --emulated" if runtime is not None and runtime.emulated else ""
        backends = ", ".join(BACKENDS) if runtime else "-"
        table.append((profile.label, profile.target, backends, here.name + mark))
    headers = ("PROFILE", "TARGET", "BACKENDS", "HERE")
    print_result(arguments, rows, [render(headers, table)])
    return Exit.OK
