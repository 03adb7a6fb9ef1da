"""What a host serves, the command that starts its child, and the environment that it gets.

The environment is quiet, deterministic, and without the credentials of the sweep.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from matrix.credentials import without_credentials

CHILD = Path(__file__).with_name("child.py")
ROOMS = CHILD.parents[2]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The object to serve and its interpreter (None: ours)."""

    name: str
    target: str
    """MODULE:ATTR."""
    python: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """The command that starts the child; it names every package that the child needs."""
        packages = {name: ROOMS / name for name in ("matrix", "machine", "workers")}
        top = self.target.partition(":")[0].partition(".")[0]
        if top not in packages and (origin := _origin(top)) is not None:
            packages[top] = origin
        named = [f"--package={name}={path}" for name, path in packages.items()]
        python = str(self.python or sys.executable)
        return [python, "-X", "utf8", str(CHILD), "--serve", self.target, *named]


def _origin(package: str) -> Path | None:
    """Where a top-level module of ours is, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin and Path(spec.origin).exists() else None


NEEDED_CREDENTIAL = "HF_TOKEN"
"""Gated models need it; it is masked in everything the child leaves behind."""

OTHER_INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Variables that would lead another interpreter to our packages."""

SETTINGS = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # read when ONNX Runtime is imported
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONHASHSEED": "0",  # the order of a set must not change a byte of an artifact
    "PYTHONUTF8": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
}

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def child_environment(
    parent: Mapping[str, str], extra: Mapping[str, str], *, foreign: bool, threads: int = 0
) -> dict[str, str]:
    """The allowed part of `parent`, then our settings, then `extra`; later ones win."""
    passed = without_credentials(parent, lambda name: name == NEEDED_CREDENTIAL)
    if foreign:
        passed = {name: text for name, text in passed.items() if name not in OTHER_INTERPRETER}
    limits = dict.fromkeys(THREADS, str(threads)) if threads else {}
    return {**passed, **SETTINGS, **limits, **extra}


def mask(text: str, secret: str | None) -> str:
    """`text` with the secret masked, unless that is too short to be one."""
    return text.replace(secret, "*" * len(secret)) if secret and len(secret) >= 8 else text
