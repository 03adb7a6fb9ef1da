"""Whether an interpreter can run the engine, and the next step if not. Runs in our interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workers.host.venv import Diagnosis, InstallFailed, probe
from workers.winml_engine.installed import PYTHON
from workers.winml_engine.patches import VERSION

INSTALL = "modelmill engine install winml"
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


def check(python: Path | None) -> Diagnosis:
    """Examine an interpreter by running it, which takes seconds."""
    if python is None:
        return _bad("no interpreter is set", f"{INSTALL}, then set engine.winml.python to its path")
    if not python.exists():
        hint = f"correct engine.winml.python, or {INSTALL}"
        return _bad(f"there is no interpreter {python}", hint)
    try:
        found = probe(python, _PROBE)
    except InstallFailed as error:
        return _bad(error.message, f"{INSTALL} makes another")
    if not isinstance(found, dict) or "python" not in found:
        return _bad(f"{python} does not run: it prints no answer", f"{INSTALL} makes another")
    fault = _fault(python, found)
    if fault:
        return _bad(fault, INSTALL)
    versions = {name: str(found[name]) for name in ("winml", "torch", "onnxruntime")}
    versions["python"] = ".".join(map(str, found["python"]))
    shown = ", ".join(f"{name} {text}" for name, text in versions.items())
    return Diagnosis(True, shown, "", versions)


def _fault(python: Path, found: dict[str, Any]) -> str:
    if tuple(found["python"][:2]) != PYTHON:
        version = ".".join(map(str, found["python"]))
        return f"{python} is Python {version}, winml-cli needs {WANTED}"
    if "winml" not in found:
        return f"winml-cli is not installed for {python}"
    if found["winml"] != VERSION:
        return f"{python} has winml-cli {found['winml']}, this engine drives {VERSION}"
    return f"winml-cli for {python} is broken: {found['problem']}" if found["problem"] else ""


def _bad(detail: str, hint: str) -> Diagnosis:
    return Diagnosis(False, detail, hint)
