"""Environments for runtimes that cannot live beside our own ONNX Runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workers.host.venv import Diagnosis, InstallFailed, interpreter_of, probe, run
from workers.runtimes.kinds import Kind

PINS = {"openvino_ep": ("onnxruntime-openvino==1.24.1", "numpy==2.4.6")}
"""What an environment holds, as tested."""
_PROBE = "import json, numpy, onnxruntime; print(json.dumps(onnxruntime.get_available_providers()))"


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
        target = interpreter_of(venv)
        if target.exists() and self.check(target).ok:
            say(f"{venv} is complete")
            return target
        say(f"making {venv}")
        base = str(python or sys.executable)
        run([base, "-m", "venv", "--clear", str(venv)], "the venv cannot be made")
        wanted = PINS[self.kind.name]
        say(f"installing {', '.join(wanted)}")
        pip = [str(target), "-m", "pip", "install", "--no-input", "-q"]
        run([*pip, *wanted], f"{self.kind.name} cannot be installed")
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
            providers = probe(python, _PROBE)
        except InstallFailed as error:
            return Diagnosis(False, error.message, again)
        missing = [name for name in self.kind.providers if name not in providers]
        if missing:
            return Diagnosis(False, f"{python} does not offer {missing[0]}", again)
        return Diagnosis(True, f"{', '.join(self.kind.providers)} in {python}")
