"""winml-cli's own environment: what it holds, and what can be wrong with it.

winml-cli pins its own numpy, onnx and transformers and needs Python 3.11, so it gets a venv. A
plain `pip install winml-cli` has two problems: it requires torchvision, whose wheels on the package
index do not import beside a CPU build of torch (and pull in CUDA while they are resolved), and
outside Windows it does not require ONNX Runtime. The venv therefore gets torch first, then
torchvision if it works or metadata in its place if not (winml-cli's build does not need it), then
everything else at the tested versions.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.host.venv import PROBE_LIMIT, Environment, InstallFailed, Say, foreign_environment, run
from workers.winml_engine.installed import PYTHON
from workers.winml_engine.patches import VERSION

WANTED = ".".join(map(str, PYTHON))
TORCH, TORCHVISION = "2.13.0", "0.28.0"
PINS = (
    f"torch=={TORCH}", "transformers==4.57.6", "optimum==2.1.0", "optimum-onnx==0.1.0",
    "onnx==1.18.0", "onnxscript==0.7.2", "numpy==2.2.6", "pandas==2.3.3", "datasets==5.0.1",
    "timm==1.0.31",
)  # fmt: skip
"""The tested versions of what can change a byte of an artifact; the rest is not pinned."""
RUNTIME = 'onnxruntime==1.27.0; sys_platform != "win32"'
"""On Windows winml-cli requires `onnxruntime-windowsml` itself."""

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


def _fault(python: Path, found: Any) -> str:
    if not isinstance(found, dict) or "python" not in found:
        return f"{python} does not run: it prints no answer"
    if tuple(found["python"][:2]) != PYTHON:
        return f"{python} is Python {_version(found)}, winml-cli needs {WANTED}"
    if "winml" not in found:
        return f"winml-cli is not installed for {python}"
    if found["winml"] != VERSION:
        return f"{python} has winml-cli {found['winml']}, this engine drives {VERSION}"
    return f"winml-cli for {python} is broken: {found['problem']}" if found["problem"] else ""


def _describe(_python: Path, found: Any) -> str:
    parts = (f"{name} {found[name]}" for name in ("winml", "torch", "onnxruntime"))
    return ", ".join([*parts, f"python {_version(found)}"])


def _version(found: dict[str, Any]) -> str:
    return ".".join(map(str, found["python"]))


def _fill(target: Path, pip: Sequence[str], say: Say) -> None:
    run([*pip, "--upgrade", "pip"], "pip cannot be updated")
    say(f"installing torch {TORCH}")
    run([*pip, f"torch=={TORCH}"], "torch cannot be installed")
    if not _torchvision(target, pip):
        say("torchvision does not work with this torch and is left out")
    say(f"installing winml-cli {VERSION}")
    pins = target.parents[1] / "pins.txt"
    pins.write_text("\n".join(PINS) + "\n", encoding="utf-8")
    wanted = [f"winml-cli=={VERSION}", RUNTIME]
    run([*pip, "-c", str(pins), *wanted], "winml-cli cannot be installed")


def _base() -> Path:
    """A Python that winml-cli supports: ours, or one on the path."""
    if sys.version_info[:2] == PYTHON:
        return Path(sys.executable)
    found = shutil.which(f"python{WANTED}")
    if found is None:
        raise InstallFailed(
            f"there is no Python {WANTED} here", hint="install it, or give --python"
        )
    return Path(found)


ENVIRONMENT = Environment("winml", _PROBE, _fault, _describe, _fill, _base)


def _torchvision(target: Path, pip: Sequence[str]) -> bool:
    """Install the version for this torch; if it does not work, put metadata in its place."""
    wanted = f"torchvision=={TORCHVISION}"
    env = foreign_environment()
    tried = subprocess.run([*pip, "--no-deps", wanted], env=env, capture_output=True, check=False)
    works = [str(target), "-c", "import torchvision, torchvision.ops"]
    if tried.returncode == 0:
        seen = subprocess.run(works, env=env, capture_output=True, timeout=PROBE_LIMIT, check=False)
        if seen.returncode == 0:
            return True
        gone = [str(target), "-m", "pip", "uninstall", "-q", "-y", "torchvision"]
        run(gone, "torchvision cannot be removed")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = run([str(target), "-c", code], "the venv does not run").strip()
    _leave_out("torchvision", TORCHVISION, Path(site))
    return False


def _leave_out(name: str, version: str, site: Path) -> None:
    """Write metadata without a package: pip is satisfied, and an import fails as usual."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    text = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: left out on purpose\n"
    )
    (info / "METADATA").write_text(text, encoding="utf-8")
    (info / "INSTALLER").write_text("modelmill\n", encoding="utf-8")
    (info / "RECORD").write_text(
        "".join(f"{info.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")),
        encoding="utf-8",
    )
