"""The export stage of `winml build`: PyTorch to ONNX, once for all targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matrix.status import FailureClass
from workers import composition
from workers.engine import StageJob, StageReport
from workers.sources import onnx_graph
from workers.sources.load import seed_everything
from workers.sources.temporary import temporary_folder
from workers.winml_engine import config as configs

MODEL = "model.onnx"


def run(job: StageJob) -> StageReport:
    """Export every component."""
    names = configs.components(job.inputs["config"])
    with temporary_folder(job.out) as temporary:
        folder = configs.model_folder(job, temporary)
        for number, name in enumerate(names or [""], 1):
            job.progress(f"exporting {name} {number}/{len(names)}" if name else "exporting")
            found = configs.read(job.inputs["config"] / name)
            what = f"the export of {name} failed" if name else "the export failed"
            with configs.failing_as(FailureClass.EXPORT, what):
                _export(job, folder, found, job.out / name / MODEL)
        if names:
            composition.write(composition.compose(_ports(job.out, names), MODEL), job.out)
    return StageReport({"components": names})


def _ports(out: Path, names: list[str]) -> dict[str, composition.Ports]:
    return {name: onnx_graph.ports(onnx_graph.load(out / name / MODEL)) for name in names}


def _export(job: StageJob, folder: Path, found: dict[str, Any], target: Path) -> None:
    from winml.modelkit.build.hf import _load_model
    from winml.modelkit.config import WinMLBuildConfig
    from winml.modelkit.export import export_onnx

    found["export"]["compatibility"] = dict(job.params["compatibility"])
    config = WinMLBuildConfig.from_dict(found)
    config.loader.trust_remote_code = configs.remote_code(job)
    config.quant = None  # belongs to another stage
    config.validate()
    target.parent.mkdir(exist_ok=True)
    seed_everything(0)  # a head that the checkpoint lacks gets random weights
    model = _load_model(config, str(folder), False, model_type=config.loader.model_type)
    export_onnx(
        model=model,
        output_path=target,
        export_config=config.export,
        model_id=str(folder),
        task=config.loader.task,
        verbose=False,
        use_external_data=True,
    )
    for report in target.parent.glob("*_htp_metadata.json"):
        report.unlink()  # it holds times and paths of this machine
