"""Requests to the winml engine."""

from __future__ import annotations

from typing import Any

from workers.engine import Request


def make_request(
    ep: str = "cpu",
    device: str = "cpu",
    provider: str = "CPUExecutionProvider",
    precision: str = "fp32",
    **more: Any,
) -> Request:
    """A request as the pipeline makes it."""
    source: dict[str, Any] = {
        "kind": "random",
        "ref": "bert",
        "revision": None,
        "seed": 1,
        "config": {},
    }
    return Request(
        model={
            "id": "owner/model",
            "task": "fill-mask",
            "model_type": "bert",
            "source": more.pop("source", source),
            "dataset": more.pop("dataset", None),
            "allow": {"remote_code": False, "pickle": False},
            **({"recipes": more.pop("recipes")} if "recipes" in more else {}),
        },
        target={"label": f"{ep}_{device}", "ep": ep, "device": device, "provider": provider},
        policy={
            "precision": precision,
            "opset": more.pop("opset", 17),
            "optimization": "basic",
            "static_shapes": False,
            "shapes": more.pop("shapes", {}),
            "quantizer": None,
            "blocked_passes": [],
            "blocked_ops": [],
            "build": more.pop("build", {}),
        },
    )
