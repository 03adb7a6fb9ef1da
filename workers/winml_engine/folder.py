"""The folder that a stage reads the model from, whatever kind of source it comes from."""

from __future__ import annotations

from pathlib import Path

from workers.engine import SOURCE, StageJob
from workers.sources import source

WEIGHTS = "weights"


def model_folder(job: StageJob, scratch: Path) -> Path:
    """A folder as `winml build -m FOLDER` takes it."""
    if WEIGHTS in job.inputs:
        return job.inputs[WEIGHTS]
    if SOURCE in job.inputs:
        source.folder_of(job.request, None, scratch)  # refuses weights that are not whole
        return job.inputs[SOURCE]
    return source.folder_of(job.request, job.params.get("commit"), scratch)


def remote_code(job: StageJob) -> bool:
    """Whether catalog and flag both let the model's own code run."""
    return source.allowed(job.request)["remote_code"]
