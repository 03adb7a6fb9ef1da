"""Whether an interpreter can run the engine, and the next step if not. Runs in our interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matrix.credentials import without_credentials
from workers.host.environment import OTHER_INTERPRETER, SETTINGS
from workers.winml_engine.installed import PYTHON
from workers.winml_engine.patches import VERSION

INSTALL = "modelmill engine install winml"
LIMIT = 180.0
"""Seconds that an interpreter may take to import everything once."""
WANTED = ".".join(map(str, PYTHON))
_PROBE = """
import json, sys
found = {"python": list(sys.version_info[:3]), "problem": ""}
try:
    from importlib.metadata import version
    found["winml"] = version("winml-cli")
    import winml.modelkit.build, winml.modelkit.config, winml.modelkit.datasets
    import onnxruntime, optimum.exporters.onnx, torch
    found["onnxruntime"] = onnxruntime.__version__
    found["torch"] = torch.__version__
except BaseException as error:
    found["problem"] = f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result for an interpreter."""

    ok: bool
    detail: str
    hint: str = ""
    versions: dict[str, str] = field(default_factory=dict)


def check(python: Path | None) -> Diagnosis:
    """Examine an interpreter by running it, which takes seconds."""
    if python is None:
        return _bad("no interpreter is set", f"{INSTALL}, then set engine.winml.python to its path")
    if not python.exists():
        hint = f"correct engine.winml.python, or {INSTALL}"
        return _bad(f"there is no interpreter {python}", hint)
    try:
        found = _probe(python)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return _bad(f"{python} does not run: {type(error).__name__}", f"{INSTALL} makes another")
    fault = _fault(python, found)
    if fault:
        return _bad(fault, INSTALL)
    versions = {name: str(found[name]) for name in ("winml", "torch", "onnxruntime")}
    versions["python"] = ".".join(map(str, found["python"]))
    shown = ", ".join(f"{name} {text}" for name, text in versions.items())
    return Diagnosis(True, shown, "", versions)


def foreign_environment() -> dict[str, str]:
    """Our environment variables for another interpreter, with the settings of an engine host.

    The only credentials are pip's: the address of an index may contain a password.
    """
    passed = without_credentials(os.environ, lambda name: name.startswith("PIP_"))
    kept = {name: value for name, value in passed.items() if name not in OTHER_INTERPRETER}
    return {**kept, **SETTINGS, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _fault(python: Path, found: dict[str, Any]) -> str:
    if tuple(found["python"][:2]) != PYTHON:
        version = ".".join(map(str, found["python"]))
        return f"{python} is Python {version}, winml-cli needs {WANTED}"
    if "winml" not in found:
        return f"winml-cli is not installed for {python}"
    if found["winml"] != VERSION:
        return f"{python} has winml-cli {found['winml']}, this engine drives {VERSION}"
    return f"winml-cli for {python} is broken: {found['problem']}" if found["problem"] else ""


def _probe(python: Path) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), "-c", _PROBE],
        env=foreign_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        check=True,
    )
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    found = json.loads(lines[-1] if lines else "")
    if not isinstance(found, dict) or "python" not in found:
        raise ValueError("not our answer")
    return found


def _bad(detail: str, hint: str) -> Diagnosis:
    return Diagnosis(False, detail, hint)
