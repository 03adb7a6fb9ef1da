"""Environments of other interpreters: where they are, how commands run in them. Runs in ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matrix.credentials import without_credentials
from matrix.errors import Exit, MillError
from workers.host.environment import OTHER_INTERPRETER, SETTINGS

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
    versions: dict[str, str] = field(default_factory=dict)


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
