"""The inputs stage: the rows that a model is verified on, the same for all its targets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.engine import StageJob
from workers.sources import model_file, runtime, samples
from workers.tabular_engine import rows


def run(job: StageJob, _temp: Path) -> Mapping[str, Any]:
    """The samples of the catalog's dataset, or seeded ones."""
    folder = job.inputs["export"]
    wanted = runtime.signature(folder / model_file.MODEL)
    dataset = job.request.model.get("dataset") if "dataset" in job.params else None
    if dataset:
        limit = int(dataset.get("samples", samples.OF_DATASET))
        given = samples.read_dataset(Path(dataset["path"]), "", limit)
        made = [samples.fitted(one, wanted) for one in given]
    else:
        graph = model_file.load_graph(folder)
        count = int(job.params.get("shapes", {}).get(rows.BATCH, rows.ROWS))
        first = int(job.params["seed"])
        seeds = range(first, first + int(job.params["samples"]))
        made = [rows.sample(graph, count, seed=seed) for seed in seeds]
    samples.check_even(made)
    samples.save(made, job.out)
    return {
        "samples": len(made),
        "origin": "dataset" if dataset else "generated",
        "inputs": {".": samples.described(made[0])},
    }
