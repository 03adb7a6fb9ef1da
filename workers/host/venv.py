"""Environments of other interpreters, for engines and runtimes that cannot run in ours.

`Environment` makes one and finds out whether it works; it runs in our interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.credentials import without_credentials
from matrix.errors import Exit, MillError
from workers.host.process import OTHER_INTERPRETER, SETTINGS

PIP_LIMIT = 3600.0
PROBE_LIMIT = 180.0
"""Seconds that an interpreter may take to import everything once."""


class InstallFailed(MillError):
    """The environment could not be made."""

    exit_code = Exit.UNUSABLE


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Whether an interpreter can do what it is for, and the next step if not."""

    ok: bool
    detail: str
    hint: str = ""


def interpreter_of(venv: Path) -> Path:
    """The interpreter of a venv."""
    return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def foreign_environment() -> dict[str, str]:
    """Our environment variables for another interpreter, with the settings of an engine host.

    The only credentials are pip's: the address of an index may contain a password.
    """
    passed = without_credentials(os.environ, lambda name: name.startswith("PIP_"))
    kept = {name: value for name, value in passed.items() if name not in OTHER_INTERPRETER}
    return {**kept, **SETTINGS, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(command: Sequence[str], fault: str, limit: float = PIP_LIMIT) -> str:
    """The output of a command. Raises `InstallFailed` with `fault` and the reason."""
    try:
        done = subprocess.run(
            command,
            env=foreign_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        reason = next((line for line in lines if line.startswith("ERROR")), "".join(lines[-1:]))
        raise InstallFailed(f"{fault}: {reason}", hint="is the package index reachable?") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise InstallFailed(f"{fault}: {error}") from error
    return done.stdout.decode(errors="replace")


def probe(python: Path, code: str) -> Any:
    """The JSON that `code` prints last. Raises `InstallFailed` if the interpreter fails."""
    fault = f"{python} does not run"
    lines = run([str(python), "-c", code], fault, PROBE_LIMIT).strip().splitlines()
    try:
        return json.loads("".join(lines[-1:]))
    except ValueError as error:
        raise InstallFailed(f"{fault}: it prints no answer") from error


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment that an engine or runtime needs."""

    name: str
    """As `modelmill engine install` takes it."""
    probe: str
    """Code that prints as JSON what the environment has."""
    fault: Callable[[Path, Any], str]
    """What is wrong with an interpreter whose probe printed that; empty: nothing."""
    describe: Callable[[Path, Any], str]
    """The same interpreter in a line, if nothing is wrong with it."""
    fill: Callable[[Path, Sequence[str], Say], None]
    """Installs into a new venv whose interpreter and `pip install` command are given."""
    base: Callable[[], Path]
    """The Python that the venv is made from."""

    def check(self, python: Path) -> Diagnosis:
        """Examine an interpreter by running it, which takes seconds."""
        again = f"modelmill engine install {self.name}"
        if not python.exists():
            return Diagnosis(False, f"there is no interpreter {python}", again)
        try:
            found = probe(python, self.probe)
        except InstallFailed as error:
            return Diagnosis(False, error.message, again)
        if fault := self.fault(python, found):
            return Diagnosis(False, fault, again)
        return Diagnosis(True, self.describe(python, found))

    def install(
        self, venv: Path, python: Path | None = None, *, say: Say = lambda _text: None
    ) -> Path:
        """Make the environment, unless it works already, and return its interpreter."""
        target = interpreter_of(venv)
        if target.exists() and self.check(target).ok:
            say(f"{venv} is complete")
            return target
        base = python or self.base()
        say(f"making {venv}")
        run([str(base), "-m", "venv", "--clear", str(venv)], "the venv cannot be made")
        self.fill(target, [str(target), "-m", "pip", "install", "--no-input", "-q"], say)
        found = self.check(target)
        if not found.ok:
            raise InstallFailed(found.detail, hint=found.hint)
        return target
