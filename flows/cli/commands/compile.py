"""`modelmill compile`: models that open at once on a device."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Parser, add_detail, add_settings, settings_of
from flows.cli.settings import PLACES
from flows.cli.table import render
from matrix.digest import MANIFEST
from matrix.errors import Exit, UsageError
from matrix.profiles import BACKENDS

if TYPE_CHECKING:
    from flows.cli.settings import Settings
    from flows.packages.written import Written
    from matrix.model import Plan, Profile
    from workers.build.origin import Fetch
    from workers.compile.devices import Availability
    from workers.compile.files import Compiled
    from workers.runtimes.pool import Runtimes
    from workers.runtimes.runtime import Runtime

_EXAMPLE = "modelmill compile model.onnx --profile htp73 -o compiled"
_VERSION = "0.0.0-"
_SETTINGS = (
    "stamp", "target", "model", "only", "skip", "emulated", "verify", "timeout", "memory",
    "publish_timeout", "package", "jobs", "tries", *PLACES,
)  # fmt: skip


def add(parser: Parser) -> None:
    parser.add_argument(
        "what",
        nargs="*",
        metavar="WHAT",
        help="ONNX files, folders of them or of a package that was pulled; "
        "or PACKAGE VERSION of the feed; or cells of the batch that --stamp names",
    )
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="PROFILE",
        help="the device profile to compile for, see --list (repeat or separate with commas)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="where the results go; without, those of the feed are published",
    )
    parser.add_argument("--share", action="store_true", help="one context for all files")
    parser.add_argument(
        "--ep-option",
        action="append",
        default=[],
        metavar="K=V",
        help="an option of the execution provider, over the profile's; the last one wins",
    )
    parser.add_argument("--embed", action="store_true", help="put the binary into the model file")
    parser.add_argument("--backend", choices=BACKENDS, help="default: the profile's")
    parser.add_argument("--no-check", action="store_true", help="do not open and run the results")
    parser.add_argument("--overwrite", action="store_true", help="with -o: replace what is there")
    parser.add_argument("--list", action="store_true", help="what this machine can compile for")
    parser.add_argument("--json", action="store_true", help="for machines")
    add_settings(parser, _SETTINGS)
    add_detail(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says, whatever is compiled."""

    arguments: argparse.Namespace
    settings: Settings
    profiles: tuple[Profile, ...]

    def unchecked(self) -> Settings:
        """The settings, with `--no-check` as a level of verification: nothing is run."""
        return replace(self.settings, verify="integrity") if self.no_check else self.settings

    @property
    def no_check(self) -> bool:
        """Whether the results are not to be opened."""
        return bool(self.arguments.no_check)

    def write(self, plan: Plan, settings: Settings, fetch: Fetch) -> Iterator[Written]:
        """Make the packages of a plan in the folder that is named."""
        from flows.packages.written import write_packages

        yield from write_packages(
            plan,
            settings,
            Path(self.arguments.output),
            fetch,
            overwrite=self.arguments.overwrite,
            progress=self.progress,
        )

    def progress(self, text: str) -> None:
        """What is being done, for people."""
        if not self.arguments.json:
            print(text, file=sys.stderr, flush=True)


def run(arguments: argparse.Namespace) -> Exit:
    """Compile files, folders or what the feed has; or list the profiles."""
    settings = settings_of(arguments)
    if arguments.list:
        return _list(settings, as_json=arguments.json)
    words, stamp = arguments.what, settings.origin("stamp").startswith("flag")
    cells = [word for word in words if "@" in word and not Path(word).exists()]
    if not (words or stamp):
        raise UsageError("no model is given", hint=_EXAMPLE)
    asked = _Asked(arguments, settings, _profiles(arguments, settings, cells))
    if stamp or cells or _names_a_version(words):
        return _published(asked, words, cells, whole=stamp)
    if not arguments.output:
        raise UsageError("no folder for the results is given", hint="-o DIR")
    return _local(asked, [Path(word) for word in words])


def _names_a_version(words: Sequence[str]) -> bool:
    return len(words) == 2 and words[1].startswith(_VERSION) and not Path(words[1]).exists()


def _profiles(
    arguments: argparse.Namespace, settings: Settings, cells: Sequence[str]
) -> tuple[Profile, ...]:
    """Those that are named, also by cells, with the options of the command line over theirs."""
    from flows.sweep.workspace import Workspace
    from matrix.cellid import parse

    names = [name for text in arguments.profile for name in text.split(",") if name.strip()]
    names += [found for cell in cells if (found := parse(cell).profile)]
    if not names:
        raise UsageError("no profile is given", hint="--profile NAME; --list shows all")
    known, options = Workspace(settings).profiles(), _ep_options(arguments.ep_option)
    chosen = {profile.label: profile for profile in map(known.get, names)}
    return tuple(
        replace(
            profile,
            options={**profile.options, **options},
            backend=arguments.backend or profile.backend,
            embed=arguments.embed or profile.embed,
        )
        for profile in chosen.values()
    )


def _published(asked: _Asked, words: Sequence[str], cells: Sequence[str], *, whole: bool) -> Exit:
    """What the feed has: published as compiled cells, or written into a folder."""
    from flows.packages.compiling import Wanted, last_stamp, plans_of, publish_compiled
    from flows.sweep.workspace import Workspace

    settings, arguments = asked.unchecked(), asked.arguments
    if arguments.share:
        raise UsageError("--share is for ONNX files", hint="give the files of the packages")
    if arguments.overwrite and not arguments.output:
        raise UsageError("a published version is never replaced", hint="--overwrite goes with -o")
    if cells and len(cells) < len(words):
        raise UsageError("cells and files are not compiled together", hint="one after the other")
    if whole and words and not cells:
        raise UsageError("--stamp takes cells of the batch", hint="or give PACKAGE VERSION alone")
    feed = Workspace(settings).open_feed()
    wanted = Wanted(settings, asked.profiles, tuple(cells))
    if whole or cells:
        stamp = settings.stamp if whole and settings.stamp else last_stamp(settings)
        versions = wanted.of_stamp(feed, stamp)
    else:
        versions = wanted.of_versions(feed, *words)
    plans = plans_of(feed, wanted, versions)
    if arguments.output:
        return _told(asked, _write_published(asked, settings, plans))
    codes = [publish_compiled(plan, settings, feed, as_json=arguments.json) for plan in plans]
    return max(codes)


def _write_published(asked: _Asked, settings: Settings, plans: Sequence[Plan]) -> Iterator[Written]:
    from flows.packages.published import fetch_portable
    from flows.sweep.workspace import Workspace

    store = Workspace(settings).store
    with _home(settings, store if store.is_dir() else None) as own:
        for plan in plans:
            yield from asked.write(plan, own, partial(fetch_portable, settings))


def _write_folders(asked: _Asked, folders: Sequence[Path]) -> Iterator[Written]:
    from flows.packages.compiling import Wanted, folder_plan
    from flows.packages.published import copy_portable

    settings = asked.unchecked()
    plans = [folder_plan(folder, Wanted(settings, asked.profiles)) for folder in folders]
    with _home(settings, None) as own:
        for folder, plan in zip(folders, plans, strict=True):
            yield from asked.write(plan, own, partial(copy_portable, folder))


@contextmanager
def _home(settings: Settings, store: Path | None) -> Iterator[Settings]:
    """The settings with a home that goes again; `store`: one whose results may be used."""
    with tempfile.TemporaryDirectory(prefix="modelmill-compile-") as name:
        yield replace(settings, home=name, store=str(store) if store else None)


def _local(asked: _Asked, paths: Sequence[Path]) -> Exit:
    """Files, folders of files, and packages that were pulled."""
    packages = [path for path in paths if (path / MANIFEST).is_file()]
    others = [path for path in paths if path not in packages]
    if packages and others:
        raise UsageError("packages and files are not compiled together", hint="one after the other")
    if packages and asked.arguments.share:
        raise UsageError("--share is for ONNX files", hint="give the files of the packages")
    if packages:
        return _told(asked, _write_folders(asked, packages))
    return _told(asked, _compile_files(asked, others))


def _told(asked: _Asked, results: Iterable[Compiled | Written]) -> Exit:
    """Print what became of everything."""
    from flows.cli.compiled import result_lines, result_to_json

    done = list(results)
    if asked.arguments.json:
        print(json.dumps([result_to_json(one) for one in done], indent=1))
    else:
        print("\n".join(result_lines(done)))
    return Exit.CELLS_FAILED if any(one.error for one in done) else Exit.OK


def _compile_files(asked: _Asked, paths: Sequence[Path]) -> Iterator[Compiled]:
    from workers.compile.files import FileCompiler, FileOptions
    from workers.host.watch import Watching

    arguments, settings = asked.arguments, asked.settings
    if len(asked.profiles) > 1:
        raise UsageError("files are compiled for one profile", hint="one after the other")
    (profile,) = asked.profiles
    with _runtimes(settings) as (runtimes, folder):
        options = FileOptions(
            profile=profile,
            runtime=_runtime(asked, profile, runtimes),
            dest=Path(arguments.output),
            share=arguments.share,
            check=not arguments.no_check,
            overwrite=arguments.overwrite,
            watching=Watching(settings.timeout, progress=asked.progress),
        )
        yield from FileCompiler(runtimes, options, folder).run(paths)


def _runtime(asked: _Asked, profile: Profile, runtimes: Runtimes) -> Runtime:
    from flows.sweep.workspace import Workspace
    from workers.compile.devices import runtime_for
    from workers.runtimes.runtime import Missing

    settings = asked.settings
    target = Workspace(settings).targets().get(profile.target)
    runtime = runtime_for(runtimes, profile, target, emulated=settings.emulated)
    if isinstance(runtime, Missing):
        raise UsageError(f"{profile.label} cannot be made here: {runtime.why}", hint=runtime.hint)
    return runtime


def _where(one: Availability) -> str:
    emulated = one.runtime is not None and one.runtime.emulated
    return f"{one.where}, with --emulated" if emulated else one.where


def _ep_options(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--ep-option: '{text}' is not K=V", hint="for example vtcm_mb=8")
        found[name] = value
    return found


@contextmanager
def _runtimes(settings: Settings) -> Iterator[tuple[Runtimes, Path]]:
    """The runtimes of this machine, and a private folder; nothing stays of either."""
    from flows.sweep.engines import runtimes_of
    from workers.host.watch import HostLimits

    limits = HostLimits(memory=settings.memory or 0)
    with tempfile.TemporaryDirectory(prefix="modelmill-compile-") as name:
        folder = Path(name)
        logs = folder / "logs"
        logs.mkdir()
        with closing(runtimes_of(settings, limits, log_dir=logs)) as runtimes:
            yield runtimes, folder


def _list(settings: Settings, *, as_json: bool) -> Exit:
    from flows.sweep.workspace import Workspace
    from workers.compile.devices import available

    work = Workspace(settings)
    with _runtimes(settings) as (runtimes, _folder):
        found = available(runtimes, work.profiles(), work.targets())
    if as_json:
        rows = [
            {
                "profile": one.profile.label,
                "target": one.profile.target,
                "backends": list(BACKENDS) if one.runtime else [],
                "default": one.profile.backend,
                "runtime": one.runtime.to_json() if one.runtime else None,
                "why": one.why or None,
                "next": one.remedy or None,
            }
            for one in found
        ]
        print(json.dumps(rows, indent=1))
        return Exit.OK
    backends = ", ".join(BACKENDS)
    table = [
        [one.profile.label, one.profile.target, backends if one.runtime else "-", _where(one)]
        for one in found
    ]
    print(render(["PROFILE", "TARGET", "BACKENDS", "HERE"], table))
    return Exit.OK
