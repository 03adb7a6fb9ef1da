"""Champions by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flows.tune.champions import as_toml
from matrix.champions import Champion, Proof
from matrix.hypotheses import Hypothesis


def a_champion(
    model: str = "a/b",
    task: str = "fill-mask",
    target: str = "mlas_cpu",
    *,
    engine: str = "optimum",
    proof: dict[str, Any] | None = None,
    **changes: Any,
) -> Champion:
    """A champion; without changes it has opset 19."""
    trial = "cpu-opset-19"
    told = {
        "tuning": "monday", "trial": trial, "comparison": "c" * 64, "artifact": "a" * 64,
        "baseline": "b" * 64, "gain": 12.5, "low": 10.25, "high": 14.0, "at": "2026-06-09T10:00:00",
        "tools": {"onnxruntime": "1.2.3"}, "machine": {"name": "box", "processor": "X1"},
        "runtime": {"provider": "CPUExecutionProvider", "device": "cpu", "version": "onnx 1"},
        **(proof or {}),
    }  # fmt: skip
    return Champion(
        model=model,
        task=task,
        target=target,
        engine=engine,
        changes=Hypothesis(
            id=trial, title=trial, targets=(target,), axis="", **(changes or {"opset": 19})
        ),
        proof=Proof(**told),
    )


def write_champions(file: Path, champions: Iterable[Champion]) -> None:
    """A file of them."""
    file.write_text(as_toml(champions), "utf-8")
