"""The inputs stage: the samples that the packages of a model are judged on, for all its targets.

winml-cli calibrates with its own; these reach verification alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from workers import composition
from workers.engine import StageJob, StageReport
from workers.samples import stage, synthetic
from workers.samples.sources import Maker, Sample, Signature, Sizes
from workers.sources import load
from workers.sources.temporary import temporary_folder
from workers.winml_engine import config as configs


def run(job: StageJob) -> StageReport:
    """Make the samples of every component, in the shapes of its graph."""
    exported = job.inputs["export"]
    record = composition.read(exported) or composition.plain([configs.MODEL])
    built = configs.read(job.inputs["config"] / record.components[0].name)
    task = job.params["task"] or built["loader"]["task"]  # which winml-cli detected
    task = str(load.tasks_manager().map_from_synonym(task))
    with temporary_folder(job.out) as temporary:
        folder = configs.model_folder(job, temporary)
        config = load.read_config(folder, remote_code=configs.remote_code(job))
        own = {one.name: partial(_made, config) for one in record.components}
        sizes = job.params.get("shapes", {})
        maker = Maker(folder, task, config, sizes, own, stage.opened(job))
        return StageReport(stage.write(job, exported, record, maker))


def _made(config: Any, wanted: Signature, sizes: Sizes, number: int) -> Sample:
    return synthetic.sample(wanted, sizes, config, number)
