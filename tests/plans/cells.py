"""Planned cells by hand, for tests that need no catalog."""

from __future__ import annotations

from typing import Any

from matrix.model import Cell, Model, PlannedModel, Policy, Source, SourceKind, Target

LABELS = (
    "qnn_npu",
    "qnn_gpu",
    "ov_cpu",
    "ov_npu",
    "ov_gpu",
    "mlas_cpu",
    "dml_gpu",
    "vitisai_npu",
)


def make_model(model: str = "tiny/model", **config: Any) -> Model:
    """A catalog entry; `config` instructs the fake engine."""
    return Model(
        id=model, task="fill-mask", source=Source(SourceKind.RANDOM, "bert", config=config)
    )


def make_cell(
    model: Model | str = "tiny/model",
    label: str = "mlas_cpu",
    *,
    precision: str = "fp32",
    optimization: str = "basic",
    opset: int = 17,
    timeout: float = 60,
    stamp: str = "20260609",
    **config: Any,
) -> Cell:
    """A cell of it."""
    entry = make_model(model, **config) if isinstance(model, str) else model
    ep, _, device = label.rpartition("_")
    slug = entry.id.replace("/", "-")
    return Cell(
        id=f"{entry.name}@{label}",
        model=entry,
        target=Target(label, ep, device, f"{ep.upper()}ExecutionProvider"),
        policy=Policy(
            precision=precision,
            default=True,
            asked=None,
            opset=opset,
            optimization=optimization,
            static_shapes=False,
            shapes={},
            quantizer=None,
            blocked_passes=(),
            blocked_ops=(),
        ),
        package=f"modelmill-{slug}",
        version=f"0.0.0-{stamp}-{ep}-{device}-{slug}",
        timeout=timeout,
        publish_timeout=60,
    )


def plan_model(model: str = "tiny/model", **config: Any) -> PlannedModel:
    """A model with a cell for each of the default targets; NPUs are quantized."""
    entry = make_model(model, **config)
    cells = tuple(
        make_cell(entry, label, precision="w8a16" if label.endswith("npu") else "fp32")
        for label in LABELS
    )
    slug = entry.id.replace("/", "-")
    return PlannedModel(entry, cells, f"modelmill-{slug}", f"0.0.0-20260609-export-{slug}")
