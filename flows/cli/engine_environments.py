"""Engines in an environment of their own: making it, and finding what is wrong with it.

Such an engine's package has a module `install` that runs in our interpreter, with
`install(venv, python, say=...) -> interpreter` and `check(interpreter) -> Diagnosis`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from flows.cli.resolution import CONFIG_NAME, ENVIRONMENT
from machine.files import replace_file
from matrix.errors import UsageError
from workers.engines import find_engine, installed_engines
from workers.host.venv import Diagnosis
from workers.runtimes.install import RuntimeInstaller
from workers.runtimes.kinds import kind_named


class Installer(Protocol):
    """An engine's `install` module."""

    def install(
        self, venv: Path, python: Path | None = None, *, say: Callable[[str], None]
    ) -> Path:
        """Make the environment; returns its interpreter."""

    def check(self, python: Path) -> Diagnosis:
        """Whether the engine runs there."""


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


def installer_of(name: str) -> Installer | None:
    """The installer of an engine; None: it runs in our own environment."""
    package = installed_engines()[name].module
    spec = find_spec(package)
    # An engine in a single module has nothing beside it.
    beside = spec is not None and spec.submodule_search_locations
    if not beside or find_spec(f"{package}.install") is None:
        return None
    return cast("Installer", import_module(f"{package}.install"))


def wanted_installer(name: str) -> Installer:
    """The installer of an engine that a user wants to install."""
    kind = kind_named(name)
    if kind is not None and not kind.extra:
        return RuntimeInstaller(kind)
    find_engine(name)  # an unknown one is told with the nearest name
    installer = installer_of(name)
    if installer is None:
        raise UsageError(
            f"engine {name} needs no environment of its own",
            hint="it comes with pip install 'modelmill[build]'" if name == "optimum" else "",
        )
    return installer
