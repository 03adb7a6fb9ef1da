"""`modelmill engine`: which engines there are, and environments for those that need their own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from flows.cli.arguments import Parser, add_settings, settings_of
from flows.cli.table import render
from matrix.errors import Exit


def add(parser: Parser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    ls = verbs.add_parser("ls", help="the engines that are installed")
    ls.add_argument("--json", action="store_true", help="for machines")
    add_settings(ls, ())
    ls.set_defaults(run=_ls)
    install = verbs.add_parser("install", help="make the environment of an engine or runtime")
    install.add_argument("name", help="the engine or runtime: winml, openvino_ep")
    install.add_argument("--venv", type=Path, help="folder; default: .venv-NAME")
    install.add_argument("--python", type=Path, help="the Python to make it from")
    add_settings(install, ())
    install.set_defaults(run=_install)


def _ls(arguments: argparse.Namespace) -> Exit:
    from flows.cli.engine_environments import engine_environment
    from workers.engines import installed_engines

    settings = settings_of(arguments)
    rows = []
    for name, point in installed_engines().items():
        apart = engine_environment(name) is not None
        default = f"none: modelmill engine install {name}" if apart else "this one"
        rows.append((name, point.value, settings.engine_pythons.get(name, default)))
    if arguments.json:
        names = ("engine", "object", "python")
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1))
    else:
        print(render(("engine", "object", "python"), rows))
    return Exit.OK


def _install(arguments: argparse.Namespace) -> Exit:
    from flows.cli.engine_environments import remember, venv_of, wanted_environment
    from workers.runtimes.runtime import kind_named

    settings = settings_of(arguments)
    environment = wanted_environment(arguments.name)
    venv = arguments.venv or venv_of(arguments.name)
    python = environment.install(venv, arguments.python, say=lambda text: print(text, flush=True))
    table = "runtime" if kind_named(arguments.name) else "engine"
    print(f"{table} {arguments.name} is ready")
    if arguments.venv:  # elsewhere it is found by itself
        print(remember(table, arguments.name, python.absolute(), settings.cwd))
    return Exit.OK
