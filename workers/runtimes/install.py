"""Environments for runtimes that cannot live beside our own ONNX Runtime."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workers.host.venv import Environment, Say, run
from workers.runtimes.runtime import Kind

PINS = {"openvino_ep": ("onnxruntime-openvino==1.24.1", "numpy==2.4.6")}
"""What an environment holds, as tested."""
_PROBE = "import json, numpy, onnxruntime; print(json.dumps(onnxruntime.get_available_providers()))"


def environment_of(kind: Kind) -> Environment:
    return Environment(
        kind.name,
        _PROBE,
        partial(_fault, kind),
        lambda python, _found: f"{', '.join(kind.providers)} in {python}",
        partial(_fill, kind.name),
        lambda: Path(sys.executable),
    )


def _fault(kind: Kind, python: Path, found: Any) -> str:
    missing = [name for name in kind.providers if name not in found]
    return f"{python} does not offer {missing[0]}" if missing else ""


def _fill(name: str, _target: Path, pip: Sequence[str], say: Say) -> None:
    say(f"installing {', '.join(PINS[name])}")
    run([*pip, *PINS[name]], f"{name} cannot be installed")
