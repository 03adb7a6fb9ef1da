"""The engine without host or store: every stage of a request, one after the other.

As a program it builds part of the demo catalog in every precision and prints what it made:

    python -m tests.engines.stages FOLDER
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.engines.optimum import plan_catalog
from workers.build.request import request_for
from workers.engine import Engine, Request, StageJob
from workers.optimum_engine import OptimumEngine

WANTED = (
    "demo/bert-tiny:*@mlas_cpu:fp16",
    "demo/bert-tiny:*@mlas_cpu:w4",
    "demo/bert-tiny:*@qnn_npu",
    "demo/t5-tiny:*@qnn_npu",
    "demo/resnet-tiny:*@mlas_cpu:w8",
)
PRECISIONS = ("fp16", "w8a16", "w8", "w4")


def run_stages(
    request: Request, root: Path, engine: Engine | None = None
) -> dict[str, Mapping[str, Any]]:
    """Run all stages below `root/<stage>`; what each told, by `stage` or `stage/component`."""
    engine = engine or OptimumEngine()
    told: dict[str, Mapping[str, Any]] = {}
    components: list[str] = [""]
    for spec in engine.plan(request).stages:
        for component in components if spec.per_component else [""]:
            out = root / spec.name / component
            out.mkdir(parents=True, exist_ok=True)
            seen = {name: _seen(root / name, component) for name in spec.inputs}
            job = StageJob(spec.name, spec.params, request, seen, out, component)
            told[f"{spec.name}/{component}".rstrip("/")] = engine.run(job).facts
        if spec.name == "export":
            components = list(told["export"]["components"]) or [""]
    return told


def digests(root: Path) -> dict[str, str]:
    """Every file below a folder."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _seen(folder: Path, component: str) -> Path:
    return folder / component if (folder / component).is_dir() else folder


def main(root: Path) -> None:
    """Build, then print the digest of every file."""
    plan = plan_catalog("demo", root, precision=PRECISIONS)
    for cell in plan.cells():
        if any(fnmatchcase(cell.id, glob) for glob in WANTED):
            run_stages(request_for(cell), root / cell.version)
    print(json.dumps(digests(root)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
