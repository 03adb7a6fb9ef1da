"""Which engine and runtimes the settings select, in which interpreters, and how many at once."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.installation import incomplete, install
from workers.errors import EngineNotFound
from workers.host.engines import extra_of, find_engine, installed_engines, missing_imports
from workers.host.process import EngineSpec
from workers.host.venv import Environment
from workers.host.watch import HostLimits
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import KINDS

_VERIFIER = ("numpy", "onnx", "onnxruntime")
"""What verification imports in our own interpreter."""


def slot_count(settings: Settings) -> int:
    """An engine host keeps about two cores busy."""
    return int(settings.jobs or max(1, (os.cpu_count() or 2) // 2))


def engine_spec(settings: Settings, name: str = "") -> EngineSpec:
    """An engine, by default that of the settings, in its own interpreter if one is named."""
    name = name or settings.engine
    python = settings.engine_pythons.get(name)
    return find_engine(name, settings.cwd / python if python else None)


def engine_environment(name: str) -> Environment | None:
    """The environment that an engine needs; None: it runs in our own."""
    package = installed_engines()[name].module
    spec = find_spec(package)
    # An engine in a single module has nothing beside it.
    beside = spec is not None and spec.submodule_search_locations
    if not beside or find_spec(f"{package}.install") is None:
        return None
    return cast("Environment", import_module(f"{package}.install").ENVIRONMENT)


def check_engine(settings: Settings) -> None:
    """Raise `EngineNotFound` unless cells can be built and verified here; starts nothing."""
    spec = engine_spec(settings)
    missing, where, extra = missing_imports(spec), spec.python, extra_of(spec.name) or "build"
    if not missing:
        missing, where = [name for name in _VERIFIER if find_spec(name) is None], None
        extra = "build"
    if not missing:
        return
    hint = installing(settings, extra, python=where)
    if missing == ["winml"]:
        hint = "modelmill engine install winml"
    lacks = f"{where or sys.executable} lacks {', '.join(missing)}"
    raise EngineNotFound(f"engine {spec.name} is not installed: {lacks}", hint=hint)


def installing(settings: Settings, *extras: str, python: Path | None = None) -> str:
    """The command that installs these extras, and all others that the settings need and this
    installation lacks."""
    needed = {
        "azure": (settings.feed or "").startswith("azure:"),
        "postgres": (settings.state or "").startswith("postgres"),
        "sign": bool(settings.sign_key),
    }
    more = incomplete(name for name, is_needed in needed.items() if is_needed)
    return install(*extras, *more, python=python)


def runtimes_of(
    settings: Settings, limits: HostLimits | None = None, log_dir: Path | None = None
) -> Runtimes:
    """The runtimes of one slot, each kind in the interpreter that the settings name for it."""
    known = settings.engine_pythons
    return Runtimes(
        log_dir=log_dir or Workspace(settings).logs,
        limits=limits or HostLimits(),
        pythons={one.name: settings.cwd / known[one.name] for one in KINDS if one.name in known},
        allowed=settings.runtimes or None,
        download=settings.allow_ep_download,
    )
