"""Environments for runtimes that cannot live beside our own ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix.errors import Exit, MillError
from workers.runtimes.kinds import Kind
from workers.winml_engine.diagnosis import foreign_environment

PINS = {"openvino_ep": ("onnxruntime-openvino==1.24.1", "numpy==2.4.6")}
"""What an environment holds, as tested."""
LIMIT = 1800.0
_PROBE = "import json, numpy, onnxruntime; print(json.dumps(onnxruntime.get_available_providers()))"


class InstallFailed(MillError):
    """The environment of a runtime could not be made."""

    exit_code = Exit.UNUSABLE


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with an interpreter, if anything."""

    ok: bool
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeInstaller:
    """Makes and checks the environment of one kind of runtime."""

    kind: Kind

    def install(
        self,
        venv: Path,
        python: Path | None = None,
        *,
        say: Callable[[str], None] = lambda _text: None,
    ) -> Path:
        """Make the environment and return its interpreter; one that works is left as it is."""
        target = self.interpreter_of(venv)
        if target.exists() and self.check(target).ok:
            say(f"{venv} is complete")
            return target
        say(f"making {venv}")
        _run([str(python or sys.executable), "-m", "venv", "--clear", str(venv)])
        wanted = PINS[self.kind.name]
        say(f"installing {', '.join(wanted)}")
        _run([str(target), "-m", "pip", "install", "--no-input", "-q", *wanted])
        found = self.check(target)
        if not found.ok:
            raise InstallFailed(found.detail, hint=found.hint)
        return target

    def check(self, python: Path) -> Diagnosis:
        """Whether the runtime is there and offers its provider."""
        again = f"modelmill engine install {self.kind.name}"
        if not python.exists():
            return Diagnosis(False, f"there is no interpreter {python}", again)
        try:
            providers = json.loads(_run([str(python), "-c", _PROBE]).splitlines()[-1])
        except (InstallFailed, ValueError, IndexError) as error:
            return Diagnosis(False, f"{python} does not run it: {error}", again)
        missing = [name for name in self.kind.providers if name not in providers]
        if missing:
            return Diagnosis(False, f"{python} does not offer {missing[0]}", again)
        return Diagnosis(True, f"{', '.join(self.kind.providers)} in {python}")

    def interpreter_of(self, venv: Path) -> Path:
        """Where a venv has its python."""
        return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=foreign_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        reason = next((line for line in lines if line.startswith("ERROR")), "".join(lines[-1:]))
        raise InstallFailed(reason, hint="is the package index reachable?") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise InstallFailed(str(error)) from error
    return done.stdout
