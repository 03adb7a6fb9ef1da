"""The export stage of `winml build`: PyTorch to ONNX, once for all targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from machine.files import unlink
from matrix.status import FailureClass
from workers import composition
from workers.engine import StageJob, StageReport
from workers.sources import compared, onnx_graph
from workers.sources.load import seed_everything
from workers.sources.temporary import temporary_folder
from workers.winml_engine import config as configs
from workers.winml_engine import originals


def run(job: StageJob) -> StageReport:
    """Export every component."""
    names = configs.components(job.inputs["config"])
    weights, parts = [], {}
    with temporary_folder(job.out) as temporary:
        folder = configs.model_folder(job, temporary)
        for number, name in enumerate(names or [""], 1):
            job.progress(f"exporting {name} {number}/{len(names)}" if name else "exporting")
            found = configs.read(job.inputs["config"] / name)
            what = f"the export of {name} failed" if name else "the export failed"
            target = job.out / name / configs.MODEL
            with configs.failing_as(FailureClass.EXPORT, what):
                weights_of, module = _export(job, folder, found, target)
            outputs = onnx_graph.load(target).graph.output
            weights.append(weights_of)
            inputs = [one.get("name") for one in found["export"].get("input_tensors") or ()]
            parts[name] = module, (inputs, [one.name for one in outputs])
            del module
        if names:
            composition.write(composition.compose(_ports(job.out, names), configs.MODEL), job.out)
        compared_facts, figures = originals.compare(job, parts, temporary)
    source = originals.together(weights)
    facts = {"components": names, "weights": source, "compared": compared_facts}
    return StageReport({**facts, **compared.noticed(source, compared_facts)}, {"compared": figures})


def _ports(out: Path, names: list[str]) -> dict[str, composition.Ports]:
    return {name: onnx_graph.ports(onnx_graph.load(out / name / configs.MODEL)) for name in names}


def _export(
    job: StageJob, folder: Path, found: dict[str, Any], target: Path
) -> tuple[dict[str, Any], Any]:
    """Where the weights of a component come from, and its module."""
    from winml.modelkit.build.hf import _load_model
    from winml.modelkit.config import WinMLBuildConfig
    from winml.modelkit.export import export_onnx

    found["export"]["compatibility"] = dict(job.params["compatibility"])
    config = WinMLBuildConfig.from_dict(found)
    config.loader.trust_remote_code = configs.remote_code(job)
    config.quant = None  # belongs to another stage
    config.validate()
    target.parent.mkdir(exist_ok=True)
    seed_everything(0)  # a head that is to be new gets random weights
    with originals.noting() as loaded:
        model = _load_model(config, str(folder), False, model_type=config.loader.model_type)
    weights = originals.weights_of(job, model, loaded, config.export.generate_dummy_inputs())
    seed_everything(0)
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
        unlink(report)  # it holds times and paths of this machine
    return weights, model
