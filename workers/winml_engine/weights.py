"""The weights stage: a seeded random model as a folder, with the optimum engine's weights."""

from __future__ import annotations

from matrix.status import FailureClass
from workers.engine import StageJob, StageReport
from workers.sources import load
from workers.sources.tasks import exporter_task
from workers.winml_engine.failures import failing_as


def run(job: StageJob) -> StageReport:
    """Write `config.json` and `model.safetensors`."""
    job.progress("making the random weights")
    with failing_as(FailureClass.EXPORT, "the random model cannot be made"):
        model = load.load(job.request, None, exporter_task(job.params["task"]))
        model.config.architectures = [type(model).__name__]
        model.save_pretrained(str(job.out), safe_serialization=True)
    return StageReport({"model_class": type(model).__name__})
