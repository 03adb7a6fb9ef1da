"""`modelmill engine`: which engines there are, and environments for those that need their own.

The package of such an engine has a module `install` with an `ENVIRONMENT`, which is used in our
interpreter.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.arguments import Arguments, Parser, add_verbs
from flows.output.console import print_result
from flows.output.table import render
from flows.settings.resolution import CONFIG_NAME, ENVIRONMENTS
from flows.settings.workspace import Workspace
from machine.files import replace_file
from machine.installation import install
from matrix.errors import UsageError
from matrix.nearest import hint, quote

if TYPE_CHECKING:
    from workers.host.venv import Environment


def add(parser: Parser) -> None:
    verb = add_verbs(parser)
    verb("ls", "list the engines", _ls, ("home",))
    text = "create the environment of an engine or runtime"
    add = verb("install", text, _install, ("home",), as_json=False).add_argument
    add("name", help="the engine or runtime: winml, openvino_ep")
    add("--venv", type=Path, help="folder of the environment; default: HOME/engines/NAME")
    add("--python", type=Path, help="the Python interpreter of the environment")


def _ls(arguments: Arguments) -> None:
    from flows.settings.engines import engine_environment
    from workers.host.engines import installed_engines

    rows = []
    for name, point in installed_engines().items():
        apart = engine_environment(name) is not None
        default = f"none: modelmill engine install {name}" if apart else _here(name)
        rows.append((name, point.value, arguments.settings.engine_pythons.get(name, default)))
    names = ("engine", "object", "python")
    document = [dict(zip(names, row, strict=True)) for row in rows]
    print_result(arguments, document, [render(names, rows)])


def _here(name: str) -> str:
    """What is said of an engine that runs in our own interpreter."""
    from workers.host.engines import extra_of, find_engine, missing_imports

    if not missing_imports(find_engine(name)):
        return "this one"
    extra = extra_of(name)
    return f"none: {install(extra)}" if extra else "this one"


def _install(arguments: Arguments) -> None:
    from workers.runtimes.runtime import kind_named

    environment = wanted_environment(arguments.name)
    workspace = Workspace(arguments.settings)
    if arguments.venv is None:
        workspace.prepare()
    venv = arguments.venv or workspace.home / ENVIRONMENTS / arguments.name
    python = environment.install(venv, arguments.python, say=lambda text: print(text, flush=True))
    table = "runtime" if kind_named(arguments.name) else "engine"
    print(f"{table} {arguments.name} is ready")
    if arguments.venv:  # elsewhere it is found by itself
        print(remember(table, arguments.name, python.absolute(), arguments.settings.cwd))


def remember(table: str, name: str, python: Path, folder: Path) -> str:
    """Write an interpreter into the settings file; returns what to tell.

    `table`: `engine` or `runtime`.
    """
    file = folder / CONFIG_NAME
    text = file.read_text("utf-8-sig") if file.exists() else ""
    section = f"[{table}.{name}]\npython = {json.dumps(str(python))}\n"
    known = tomllib.loads(text).get(table, {}).get(name, {}).get("python")
    if known is None:
        replace_file(file, f"{text.rstrip()}\n\n{section}".lstrip().encode())
    elif known != str(python):
        return f"{file.name} names another interpreter for it; to use this one:\n{section}"
    return f"{file.name} says where it is"


def wanted_environment(name: str) -> Environment:
    """The environment of an engine or runtime that a user wants to install."""
    from flows.settings.engines import engine_environment
    from workers.host.engines import extra_of, installed_engines
    from workers.runtimes.install import PINS, environment_of
    from workers.runtimes.runtime import kind_named

    kind = kind_named(name)
    if kind is not None and not kind.extra:
        return environment_of(kind)
    engines = installed_engines()
    if name not in engines:
        names = [*filter(engine_environment, engines), *PINS]
        raise UsageError(f"there is no engine or runtime {quote(name)}", hint=hint(name, names))
    environment = engine_environment(name)
    if environment is None:
        extra = extra_of(name)
        how = f"it comes with {install(extra)}" if extra else ""
        raise UsageError(f"engine {name} needs no environment of its own", hint=how)
    return environment
