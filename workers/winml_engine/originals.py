"""The models that winml-cli exports: what of their weights came from the checkpoint, and what they
compute, for the comparison of an export with its model.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workers.engine import StageJob
from workers.samples import files
from workers.samples.parts import JUDGE
from workers.sources import checkpoint, compared, load
from workers.sources.compared import RULE, NotComparable, Part, Sample, Samples
from workers.sources.errors import one_line
from workers.winml_engine import inputs

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
        return compared.compare_parts(job, parts, _sample_sets(job, temp, parts), compute)
    except NotComparable as reason:
        return {"not": str(reason)}, {}


def _sample_sets(job: StageJob, temp: Path, parts: Mapping[str, Part]) -> Samples:
    """Samples of every component, made as the stage `inputs` makes them, and their kind."""
    out = temp / "inputs"
    out.mkdir()
    given = {**job.inputs, "export": job.out}
    params = {**job.params, "task": job.request.model["task"], "parts": RULE}
    told = inputs.run(replace(job, params=params, inputs=given, out=out)).facts
    sets = {name: files.load(out, name, JUDGE) for name in parts}
    return Samples(sets, told["samples"]["kind"])


def compute(part: Part, sets: Sequence[Sample]) -> tuple[list[dict[str, Any]], str]:
    """What a module computes by itself, without winml-cli's and Optimum's replacements, under the
    names of its graph's outputs."""
    import torch

    module, (inputs, outputs) = part
    module.eval()
    found = []
    for sample in sets:
        load.seed_everything(0)
        # Some modules of winml-cli take their inputs by place.
        ordered = sorted(sample, key=lambda name: inputs.index(name) if name in inputs else -1)
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
