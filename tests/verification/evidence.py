"""Evidence of verification as records keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrix.verification import RUNGS

ROWS = {"model.onnx logits": (24.5, 0.98)}


def proven(
    kind: str, rows: Mapping[str, tuple[float, float | None]] = ROWS, **more: Any
) -> list[dict[str, Any]]:
    """The rungs of a trained model's package that has climbed up to parity.

    `rows`: of every output the decibels and the agreement; `more`: evidence of the rung `samples`.
    """
    figures = {
        name: {"snr": snr} | ({} if share is None else {"agreement": share, "decisions": 50})
        for name, (snr, share) in rows.items()
    }
    samples = {
        "samples": [{"kind": kind, "origin": f"of {kind}"}],
        "judged": 16,
        "trained": True,
        "needs_real": True,
        **more,
    }
    evidence = {
        "samples": samples,
        "parity": {"onnxruntime CPU": figures, "limits": {"snr": 20.0, "agreement": 0.97}},
    }
    names = RUNGS[: RUNGS.index("parity") + 1]
    return [
        {"name": name, "passed": True, "detail": f"of {name}", "evidence": evidence.get(name, {})}
        for name in names
    ]
