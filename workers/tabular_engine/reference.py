"""Compares the graph with the predictions of the model's own library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workers.engine import StageJob
from workers.runtimes.values import compare
from workers.samples import files
from workers.samples.parts import JUDGE
from workers.sources import model_file, runtime
from workers.tabular_engine import files as model_files
from workers.tabular_engine import original
from workers.tabular_engine.original import Original

SETS = 3
"""Samples that are compared."""
AGREE = 0.99
"""Share of labels: where two classes are equally likely, rounding decides."""
ERROR = 1e-3
Distances = Mapping[str, Mapping[str, Any]]


def run(job: StageJob, temp: Path) -> Mapping[str, Any]:
    """For every output, its distance from the library's own. Not a stage of a build: onboarding
    asks for it."""
    model = original.load(model_files.fetch(job, temp), job.params["task"])
    file = job.inputs["export"] / model_file.MODEL
    sets = files.load(job.inputs["inputs"], "", JUDGE)[:SETS]
    return {"outputs": {".": distances(file, model, sets)}, "sets": len(sets)}


def distances(file: Path, model: Original, sets: list[dict[str, Any]]) -> Distances:
    """By output, the worst over all sets."""
    ready = runtime.session(file)
    found = [runtime.run(ready, one) for one in sets]
    theirs = [model.predict(next(iter(one.values()))) for one in sets]
    return compare(found, theirs)


def faults(found: Distances) -> Iterator[str]:
    """Outputs that differ from those of the library."""
    for name, one in found.items():
        if problem := one.get("problem") or one.get("absent"):
            yield f"{name}: {problem}"
        elif one.get("agree", 1.0) < AGREE:
            yield f"{name}: {one['agree']:.2%} of its values agree"
        elif one.get("error", 0.0) > ERROR:
            yield f"{name}: relative error {one['error']:.2g}"
