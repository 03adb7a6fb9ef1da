"""The export stage of `winml build`: PyTorch to ONNX, once for all targets.

The facts say what of the weights came from the checkpoint, and the export is compared with what
its modules compute.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine.files import unlink
from matrix.status import FailureClass
from workers import composition
from workers.engine import StageJob, StageReport
from workers.samples import files
from workers.samples.parts import JUDGE
from workers.sources import checkpoint, compared, load, onnx_graph
from workers.sources.compared import RULE, NotComparable, Part, Sample, Samples
from workers.sources.errors import one_line
from workers.sources.load import seed_everything
from workers.sources.temporary import temporary_folder
from workers.winml_engine import config as configs
from workers.winml_engine import inputs


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
            taken = [one.get("name") for one in found["export"].get("input_tensors") or ()]
            parts[name] = module, (taken, [one.name for one in outputs])
            del module
        if names:
            composition.write(composition.compose(_ports(job.out, names), configs.MODEL), job.out)
        compared_facts, figures = compare(job, parts, temporary)
    source = together(weights)
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
    with noting() as loaded:
        model = _load_model(config, str(folder), False, model_type=config.loader.model_type)
    weights = weights_of(job, model, loaded, config.export.generate_dummy_inputs())
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


Loaded = list[tuple[Any, Mapping[str, Any]]]
"""Models, each with what Transformers says of its checkpoint."""


@contextlib.contextmanager
def noting() -> Iterator[Loaded]:
    """Note what Transformers loads in this block: winml-cli does not ask what was missing."""
    from transformers import PreTrainedModel

    found: Loaded = []
    plain: Any = PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls: Any, *given: Any, **named: Any) -> Any:
        model, info = plain.__func__(cls, *given, **named, output_loading_info=True)
        found.append((model, info))
        return model

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)
    try:
        yield found
    finally:
        PreTrainedModel.from_pretrained = plain


def weights_of(job: StageJob, module: Any, found: Loaded, example: Sample) -> dict[str, Any]:
    """For the facts, where the weights of a module come from. Raises `StageError` as the engine
    `optimum` does; `found`: what was loaded for it, the whole model last."""
    if "weights" in job.inputs:
        return {"from_source": 0.0, "seed": int(job.request.model["source"].get("seed") or 0)}
    if not found:
        return {"not": "the model is not from Transformers"}
    model, info = found[-1]

    def run() -> Sequence[Any]:
        import torch

        with torch.inference_mode():
            return list(_flat(_forward(module, example)).values())

    new_head = bool(job.params.get("new_head"))
    return checkpoint.settle(model, checkpoint.read(model, info), run, new_head=new_head)


def together(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts about the weights of all components: the worst of each."""
    for one in found:
        if "from_source" not in one or "seed" in one:
            return dict(one)
    return {
        "from_source": min(one["from_source"] for one in found),
        "new": sorted({name for one in found for name in one["new"]}),
        "ignored": min(one["ignored"] for one in found),
    }


def compare(
    job: StageJob, parts: dict[str, Part], temp: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `compared.compare_parts` says of the parts, which it empties; or why nothing can be
    compared."""
    try:
        return compared.compare_parts(job, parts, *_sample_sets(job, temp, parts), compute)
    except NotComparable as reason:
        return {"not": str(reason)}, {}


def _sample_sets(job: StageJob, temp: Path, parts: Mapping[str, Part]) -> tuple[Samples, str]:
    """Samples of every component, made as the stage `inputs` makes them, and their kind."""
    out = temp / "inputs"
    out.mkdir()
    given = {**job.inputs, "export": job.out}
    params = {**job.params, "task": job.request.model["task"], "parts": RULE}
    told = inputs.run(replace(job, params=params, inputs=given, out=out)).facts
    sets = {name: files.load(out, name, JUDGE) for name in parts}
    return sets, told["samples"]["kind"]


def compute(part: Part, sets: Sequence[Sample]) -> tuple[list[dict[str, Any]], str]:
    """What a module computes by itself, without winml-cli's and Optimum's replacements, under the
    names of its graph's outputs."""
    import torch

    module, (taken, outputs) = part
    module.eval()
    found = []
    for sample in sets:
        load.seed_everything(0)
        # Some modules of winml-cli take their inputs by place.
        ordered = sorted(sample, key=lambda name: taken.index(name) if name in taken else -1)
        tensors = {name: torch.from_numpy(sample[name].copy()) for name in ordered}
        try:
            with torch.inference_mode():
                flat = _flat(_forward(module, tensors))
        # Modules of winml-cli and of a model's own code raise anything.
        except Exception as error:
            text = f"PyTorch cannot run the model on its samples: {one_line(error)}"
            raise NotComparable(text) from error
        found.append(_named(flat, outputs))
    return found, ""


def _forward(module: Any, tensors: Mapping[str, Any]) -> Any:
    if hasattr(module, "get_export_args"):  # winml-cli's own modules
        return module(*module.get_export_args(tensors))
    taken = inspect.signature(module.forward).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return module(**tensors)
    return module(**{name: value for name, value in tensors.items() if name in taken})


def _flat(outputs: Any, name: str = "") -> dict[str, Any]:
    """The tensors of an output, in order; those without a name of their own are numbered."""
    import torch

    if isinstance(outputs, torch.Tensor):
        return {name: outputs}
    if isinstance(outputs, Mapping):
        pairs = [(str(key), one) for key, one in outputs.items()]
    elif isinstance(outputs, list | tuple):
        pairs = [(f"{name}.{place}", one) for place, one in enumerate(outputs)]
    else:
        return {}
    return {key: one for inner, value in pairs for key, one in _flat(value, inner).items()}


def _named(flat: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """By the names of the graph's outputs, which are given in the order of PyTorch's."""
    if not set(names) <= set(flat):
        if len(flat) != len(names):
            text = f"PyTorch gives {len(flat)} outputs, the graph {len(names)} with other names"
            raise NotComparable(text)
        flat = dict(zip(names, flat.values(), strict=True))
    return {name: flat[name].numpy() for name in names}
