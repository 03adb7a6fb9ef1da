"""The inputs stage: the samples of a model in their three parts, the same for all targets."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from workers import composition
from workers.composition import Composition
from workers.engine import StageError, StageJob
from workers.optimum_engine import components
from workers.optimum_engine.architectures import shapes
from workers.samples import loops, stage, synthetic
from workers.samples.sources import Maker, Sample, Signature, Sizes
from workers.sources import load, model_file, runtime
from workers.sources.errors import one_line, quantize_error
from workers.sources.load import exporter_task


def run(job: StageJob, _temp: Path) -> Mapping[str, Any]:
    """Make the samples of every component."""
    exported = job.inputs["export"]
    record = composition.read(exported) or composition.plain([model_file.MODEL])
    ready = bool(job.request.model["source"].get("file"))
    maker = _for_ready_file(job, exported) if ready else _for_export(job, exported, record)
    facts: Mapping[str, Any] = stage.write(job, exported, record, maker)
    return facts


def _for_ready_file(job: StageJob, exported: Path) -> Maker:
    """By the graph alone, which has its own names for its axes."""
    dataset, sizes = stage.opened(job), job.params.get("shapes", {})
    config: Any = None
    with contextlib.suppress(StageError):  # a folder may have none, or one of another library
        config = load.read_config(exported)
    if not stage.decides(dataset):
        sizes = shapes.settled(exported, sizes)

    def make(wanted: Signature, sizes: Sizes, number: int) -> Sample:
        return synthetic.sample(wanted, sizes, config, number)

    return Maker(exported, job.params["task"], config, sizes, {"": make}, dataset)


def _for_export(job: StageJob, exported: Path, record: Composition) -> Maker:
    """With the shapes of Optimum's dummy inputs, from the layout of each component."""
    task = exporter_task(job.params["task"])
    config = load.read_config(exported)
    asked = job.params.get("shapes", {})
    # Components with joined outputs always run at their full length.
    sizes = shapes.base_shapes(config, exported, asked, padded=bool(record.joins))
    if record.loop is not None:
        if sizes["batch_size"] != 1:
            text = "a decoder with a cache generates one text at a time"
            raise quantize_error(text, "leave batch_size out of the shapes in the catalog")
        alone = len(record.components) == 2
        sizes = {loops.PAST: shapes.past(config, sizes, alone=alone), **sizes}
    model = load.skeleton(config, task)
    if hasattr(config, "use_cache"):
        model.config.use_cache = task.endswith("-with-past")
    parts = components.parts(model, task, exported)
    own = {name: partial(made, part, config) for name, (_module, part) in parts.items()}
    return Maker(exported, task, config, sizes, own, stage.opened(job))


def example(
    parts: components.Parts, exported: Path, task: str, config: Any, name: str, sizes: Sizes
) -> Sample:
    """The first sample of an exported component: no part has it."""
    maker = Maker(exported, task, config, sizes, {name: partial(made, parts[name][1], config)})
    return maker.source(name, runtime.signature(model_file.find(exported, name))).sample(0)


def made(part: Any, config: Any, wanted: Signature, sizes: Sizes, number: int) -> Sample:
    """A synthetic sample for a component, in the shapes that Optimum's generators know."""
    load.seed_everything(number)
    return synthetic.sample(wanted, sizes, config, number, _dummies(part, wanted, sizes))


def _dummies(part: Any, wanted: Signature, sizes: Sizes) -> Sample:
    """What Optimum generates, under the names of the graph."""
    import numpy as np

    known = {name: size for name, size in sizes.items() if name in shapes.SHAPES}
    try:
        if hasattr(part, "settle"):
            part.settle(wanted)
        raw = part.generate_dummy_inputs(framework="np", **known)
        raw = part.generate_dummy_inputs_for_validation(raw, onnx_input_names=list(wanted))
        raw = part.rename_ambiguous_inputs(raw)
    except (ValueError, TypeError, KeyError, RuntimeError, IndexError) as error:
        raise quantize_error(
            f"Optimum cannot generate inputs for this model: {one_line(error)}",
            "give the catalog entry a dataset",
        ) from error
    flat: dict[str, Any] = {}
    for name, value in raw.items():
        if isinstance(value, list | tuple):
            flat |= part.flatten_output_collection_property(name, value)
        else:
            flat[name] = value
    if missing := set(wanted) - set(flat):
        raise quantize_error(
            f"Optimum generates no input '{min(missing)}'", "give the catalog entry a dataset"
        )
    return {name: np.asarray(flat[name], dtype=port.dtype) for name, port in wanted.items()}
