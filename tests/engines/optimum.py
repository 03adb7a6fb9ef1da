"""Building with the real engine, in its own host, and comparing what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from feed.rules import STRICTEST
from matrix.catalog import load_catalog
from matrix.model import Cell, Plan
from matrix.plan import make_plan
from matrix.selector import Selection
from matrix.targets import load_targets
from tests.plans.models import plan_options
from workers.build.builder import Builder
from workers.build.built import Built
from workers.host.client import EngineHost
from workers.samples import files, parts
from workers.store import Store


def plan_catalog(catalog: str | Path, base: Path, **options: Any) -> Plan:
    """The plan of a catalog for the default targets."""
    targets = load_targets()
    return make_plan(
        load_catalog(catalog, base=base, targets=targets),
        targets,
        Selection(),
        plan_options("20260609", STRICTEST, **options),
    )


@contextmanager
def builder(root: Path, host: EngineHost) -> Iterator[Builder]:
    """A builder with a store of its own."""
    made = Builder(Store(root / "store"), host, root / "work")
    try:
        yield made
    finally:
        made.close()


def cosine(left: Any, right: Any) -> float:
    """How alike two outputs are."""
    a, b = left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else float((a == b).all())


def export_of(made: Builder, plan: Plan, cell: Cell, dest: Path) -> Path:
    """The export of a cell's model, in a folder of its own."""
    planned = next(item for item in plan.models if item.model.name == cell.model.name)
    return made.build(cell, export_version=planned.export_version).move_to(dest)


def inputs_of(built: Built, dest: Path) -> Path:
    """The samples that belong to a build."""
    dest.mkdir(parents=True)
    built.store.materialize(built.inputs, dest)
    return dest


def compare(reference: Path, package: Path, inputs: Path) -> dict[str, float]:
    """The worst cosine of every output over all samples, by `component/output`."""
    import onnx
    import onnxruntime

    worst: dict[str, float] = {}
    for file in sorted(reference.rglob("model.onnx")):
        component = file.parent.relative_to(reference).as_posix().replace(".", "", 1)
        onnx.checker.check_model(str(package / component / "model.onnx"))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        left, right = (
            onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for path in (file, package / component / "model.onnx")
        )
        names = [value.name for value in left.get_outputs()]
        assert [v.name for v in right.get_outputs()] == names
        assert [v.name for v in right.get_inputs()] == [v.name for v in left.get_inputs()]
        for sample in files.load(inputs, component, parts.JUDGE):
            runs = zip(names, left.run(names, sample), right.run(names, sample), strict=True)
            for name, expected, found in runs:
                assert found.shape == expected.shape
                assert found.dtype == expected.dtype
                assert np.isfinite(found).all()
                key = f"{component}/{name}"
                worst[key] = min(worst.get(key, 1.0), cosine(expected, found))
    return worst
