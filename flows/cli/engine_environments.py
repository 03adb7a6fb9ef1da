"""Engines in an environment of their own: making it, and finding what is wrong with it.

Such an engine's package has a module `install` with an `ENVIRONMENT`, which is used in our
interpreter.
"""

from __future__ import annotations

import json
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from flows.cli.resolution import CONFIG_NAME, ENVIRONMENT
from machine.files import replace_file
from matrix.errors import UsageError
from workers.engines import find_engine, installed_engines
from workers.host.venv import Environment
from workers.runtimes.install import environment_of
from workers.runtimes.runtime import kind_named


def venv_of(name: str) -> Path:
    """The default folder of an engine's environment."""
    return Path(f"{ENVIRONMENT}{name}")


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


def engine_environment(name: str) -> Environment | None:
    """The environment that an engine needs; None: it runs in our own."""
    package = installed_engines()[name].module
    spec = find_spec(package)
    # An engine in a single module has nothing beside it.
    beside = spec is not None and spec.submodule_search_locations
    if not beside or find_spec(f"{package}.install") is None:
        return None
    return cast("Environment", import_module(f"{package}.install").ENVIRONMENT)


def wanted_environment(name: str) -> Environment:
    """The environment of an engine or runtime that a user wants to install."""
    kind = kind_named(name)
    if kind is not None and not kind.extra:
        return environment_of(kind)
    find_engine(name)  # an unknown one is told with the nearest name
    environment = engine_environment(name)
    if environment is None:
        raise UsageError(
            f"engine {name} needs no environment of its own",
            hint="it comes with pip install 'modelmill[build]'" if name == "optimum" else "",
        )
    return environment
