"""`modelmill compile`: models that open at once on a device."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.quantity import show_duration, show_size
from flows.cli.table import render
from matrix.errors import Exit, UsageError
from matrix.profiles import BACKENDS

if TYPE_CHECKING:
    from flows.cli.settings import Settings
    from workers.compile.check import Opening
    from workers.compile.files import Compiled, FileOptions
    from workers.runtimes.pool import Runtimes

_EXAMPLE = "modelmill compile model.onnx --profile htp73 -o compiled"
_INDENT = " " * 9


def add(parser: Parser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx", help="portable ONNX files")
    parser.add_argument("--profile", help="the device profile to compile for, see --list")
    parser.add_argument("-o", "--output", metavar="DIR", help="where the context models go")
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
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument(
        "--emulated", action="store_true", help="allow an emulator of the device to compile"
    )
    parser.add_argument("--list", action="store_true", help="what this machine can compile for")
    parser.add_argument("--json", action="store_true", help="for machines")
    add_settings(parser, ("targets_file", "timeout", "memory"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    """Compile files, or list the profiles."""
    settings = settings_of(arguments)
    if arguments.list:
        return _list(settings, as_json=arguments.json)
    for given, what, hint in (
        (arguments.models, "model", _EXAMPLE),
        (arguments.profile, "profile", "--profile NAME; --list shows all"),
        (arguments.output, "folder for the results", "-o DIR"),
    ):
        if not given:
            raise UsageError(f"no {what} is given", hint=hint)
    done = _compile(settings, arguments)
    if arguments.json:
        print(json.dumps([_to_json(one) for one in done], indent=1))
    else:
        print("\n".join(_lines(done)))
    return Exit.CELLS_FAILED if any(one.error for one in done) else Exit.OK


def _compile(settings: Settings, arguments: argparse.Namespace) -> list[Compiled]:
    from workers.compile.files import FileCompiler

    with _runtimes(settings) as (runtimes, folder):
        compiler = FileCompiler(runtimes, _options(settings, arguments, runtimes), folder)
        return compiler.run([Path(name) for name in arguments.models])


def _options(settings: Settings, arguments: argparse.Namespace, runtimes: Runtimes) -> FileOptions:
    from flows.sweep.workspace import Workspace
    from workers.compile.devices import runtime_for
    from workers.compile.files import FileOptions
    from workers.runtimes.runtime import Missing

    work = Workspace(settings)
    profile = work.profiles().get(arguments.profile)
    target = work.targets().get(profile.target)
    given = _ep_options(arguments.ep_option)
    runtime = runtime_for(runtimes, profile, target, given, emulated=arguments.emulated)
    if isinstance(runtime, Missing):
        raise UsageError(f"{profile.label} cannot be made here: {runtime.why}", hint=runtime.hint)

    def progress(text: str) -> None:
        if not arguments.json:
            print(text, file=sys.stderr, flush=True)

    return FileOptions(
        profile=profile,
        runtime=runtime,
        dest=Path(arguments.output),
        backend=arguments.backend or profile.backend,
        embed=arguments.embed or profile.embed,
        share=arguments.share,
        check=not arguments.no_check,
        overwrite=arguments.overwrite,
        timeout=settings.timeout,
        progress=progress,
    )


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
        [one.profile.label, one.profile.target, backends if one.runtime else "-", one.where]
        for one in found
    ]
    print(render(["PROFILE", "TARGET", "BACKENDS", "HERE"], table))
    return Exit.OK


def _lines(done: Sequence[Compiled]) -> Iterator[str]:
    for one in done:
        if one.error:
            yield f"FAILED   {one.source}: {one.error}"
        elif one.warning:
            yield f"warning  {one.source}: {one.warning}"
        else:
            yield f"compiled {one.source} -> {one.output} in {show_duration(one.seconds)}"
            yield from _details(one)
    users = [path for one in done for path in one.binaries]
    for path in dict.fromkeys(users):
        if users.count(path) > 1:
            size = show_size(path.stat().st_size)
            yield f"{path.name} ({size}) holds {users.count(path)} graphs"
    if failed := sum(bool(one.error) for one in done):
        yield f"{failed} of {len(done)} models failed"


def _details(one: Compiled) -> Iterator[str]:
    for path in one.binaries:
        yield f"{_INDENT}binary {path.name}, {show_size(path.stat().st_size)}"
    checked = one.checked
    if checked is None:
        yield f"{_INDENT}not checked"
        return
    yield f"{_INDENT}{'checked' if checked.passed else 'not checked'}: {checked.detail}"
    if checked.portable and checked.compiled:
        opens, before = _opening(checked.compiled), _opening(checked.portable)
        yield f"{_INDENT}opens in {opens}; the portable model in {before}"


def _opening(opening: Opening) -> str:
    return f"{show_duration(opening.seconds)} and {show_size(opening.memory)}"


def _to_json(one: Compiled) -> dict[str, object]:
    return {
        "source": str(one.source),
        "output": str(one.output) if one.output else None,
        "binaries": [str(path) for path in one.binaries],
        "seconds": one.seconds,
        "error": one.error or None,
        "warning": one.warning or None,
        "checked": asdict(one.checked) if one.checked else None,
    }
