"""How tests get at the test-only engines: by entry point, from a folder put on the path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from workers.engine import Request
from workers.host.client import EngineSpec

SITE = Path(__file__).with_name("site")
"""Holds the engines and their dist-info; a child process of a test gets it in PYTHONPATH."""

FAKE = "fake"
NOTHING = "nothing"


def install() -> None:
    """Make the entry points of the fakes visible in this process."""
    if str(SITE) not in sys.path:
        sys.path.insert(0, str(SITE))


def fake_spec(python: Path | None = None, **env: str) -> EngineSpec:
    """The misbehaving engine, without a look at entry points."""
    install()
    return EngineSpec(FAKE, "modelmill_fakes:FakeEngine", python, env)


def request(model: str = "tiny/model", label: str = "mlas_cpu", **config: Any) -> Request:
    """A request with instructions for the fake engine."""
    return Request(
        model={
            "id": model,
            "task": "fill-mask",
            "model_type": "bert",
            "source": {
                "kind": "random",
                "ref": "bert",
                "revision": None,
                "seed": 0,
                "config": config,
            },
            "dataset": None,
            "allow": {"remote_code": False, "pickle": False},
        },
        target={"label": label, "ep": "mlas", "device": "cpu", "provider": "CPUExecutionProvider"},
        policy={
            "precision": "fp32",
            "opset": 17,
            "optimization": "basic",
            "static_shapes": False,
            "shapes": {},
            "quantizer": None,
            "blocked_passes": [],
            "blocked_ops": [],
        },
    )
