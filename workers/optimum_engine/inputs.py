"""The inputs stage: the three parts of the samples, the same for all targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from workers import composition
from workers.composition import Composition, split
from workers.engine import StageError, StageJob
from workers.optimum_engine import components, loop_inputs, plain_inputs, shapes
from workers.optimum_engine.layout import READY, SHAPES
from workers.samples import datasets, files, parts
from workers.sources import load, model_file, runtime
from workers.sources.errors import one_line, quantize_error
from workers.sources.load import exporter_task

_ONES = ("attention_mask", "pixel_mask")
Sample = dict[str, Any]
Sizes = Mapping[str, int]
Make = Callable[[runtime.Signature, Sizes], Sample]
"""Makes a sample for a graph, with these sizes for its open axes."""


def run(job: StageJob, _temp: Path) -> Mapping[str, Any]:
    """Make the samples of every component."""
    exported = job.inputs["export"]
    record = composition.read(exported) or composition.plain([model_file.MODEL])
    ready = job.params["task"] == READY
    makers, sizes = _for_ready_file(job, exported) if ready else _for_export(job, exported, record)
    own = "dataset" in job.params
    wanted_parts = parts.sizes(job.params["parts"], files.size(exported))
    found: dict[str, dict[str, list[Sample]]] = {part: {} for part in parts.PARTS}
    divided: dict[str, dict[str, list[Sample]]] = {}
    for name in (one.name for one in record.components):
        if record.loop is not None and name == record.loop.step:
            job.progress(f"making inputs for {name}")
            for sets in found.values():
                past = sizes[loop_inputs.PAST]
                sets[name] = loop_inputs.of_step(record, sets, exported, past)
        else:
            wanted = runtime.signature(model_file.find(exported, name))
            total = sum(wanted_parts.values())
            made = _samples(job, name, makers[name], wanted, sizes, total)
            cut = parts.cut(made, parts.divided(len(made), wanted_parts))
            for part, some in cut.items():
                found[part][name] = some
                loop_inputs.shaped(record, name, found[part], exported, generated=not own)
                _link(found[part], name, exported, record)
        divided[name] = {part: sets[name] for part, sets in found.items()}
        files.save(divided[name], job.out, name)
    if not own:
        return files.facts(divided, "synthetic", "made values")
    return files.facts(divided, "dataset", Path(job.request.model["dataset"]["path"]).name)


def _for_ready_file(job: StageJob, exported: Path) -> tuple[dict[str, Make], Sizes]:
    """NumPy's generators; a dataset has every input of a ready file and so decides all sizes."""
    asked = job.params.get("shapes", {})
    if "dataset" not in job.params:
        wanted = runtime.signature(exported / model_file.MODEL)
        asked = plain_inputs.settle(exported, wanted, asked)
    return {"": plain_inputs.generate}, asked


def _for_export(
    job: StageJob, exported: Path, record: Composition
) -> tuple[dict[str, Make], Sizes]:
    """Optimum's own generators of dummy inputs, from the layout of each component."""
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
        sizes = {loop_inputs.PAST: shapes.past(config, sizes, alone=alone), **sizes}
    model = load.skeleton(config, task)
    if hasattr(config, "use_cache"):
        model.config.use_cache = task.endswith("-with-past")
    parts = components.parts(model, task, exported)
    return {name: partial(generate, part) for name, (_module, part) in parts.items()}, sizes


def _samples(
    job: StageJob,
    component: str,
    make: Make,
    wanted: runtime.Signature,
    sizes: Sizes,
    total: int,
) -> list[Sample]:
    """The dataset's samples with generated values for missing inputs, or only generated ones."""
    dataset = job.request.model.get("dataset") if "dataset" in job.params else None
    if not dataset:
        count, given = total, []
    else:
        limit = int(dataset.get("samples", total))
        given = datasets.read_dataset(Path(dataset["path"]), component, limit)
        count = len(given)
        sizes = {**sizes, **sizes_of(given[0], wanted)}
    made = []
    what = f"making inputs for {component}" if component else "making inputs"
    for index in range(count):
        job.progress(f"{what} {index + 1}/{count}")
        load.seed_everything(int(job.params["seed"]) + index)
        sample = make(wanted, sizes)
        if given:
            sample |= datasets.fitted(given[index], wanted)
        made.append(sample)
    files.check_even(made)
    return made


def generate(config: Any, wanted: runtime.Signature, sizes: Sizes) -> Sample:
    """One sample from the model's own generators, in the names, types and ranks of its graph."""
    import numpy as np

    try:
        if hasattr(config, "settle"):
            config.settle(wanted)
        raw = config.generate_dummy_inputs(framework="np", **sizes)
        raw = config.generate_dummy_inputs_for_validation(raw, onnx_input_names=list(wanted))
        raw = config.rename_ambiguous_inputs(raw)
    except (ValueError, TypeError, KeyError, RuntimeError, IndexError) as error:
        raise quantize_error(
            f"Optimum cannot generate inputs for this model: {one_line(error)}",
            "give the catalog entry a dataset",
        ) from error
    flat: dict[str, Any] = {}
    for name, value in raw.items():
        if isinstance(value, list | tuple):
            flat |= config.flatten_output_collection_property(name, value)
        else:
            flat[name] = value
    if missing := set(wanted) - set(flat):
        raise quantize_error(
            f"Optimum generates no input '{min(missing)}'", "give the catalog entry a dataset"
        )
    return {
        name: plausible(name, np.asarray(flat[name], dtype=spec.dtype))
        for name, spec in wanted.items()
    }


def plausible(name: str, array: Any) -> Any:
    """Masks that hide nothing and positions that count up: random ones are not typical."""
    import numpy as np

    if name.endswith(_ONES):
        return np.ones_like(array)
    if name.endswith("position_ids") and array.ndim >= 1:
        return np.broadcast_to(np.arange(array.shape[-1], dtype=array.dtype), array.shape).copy()
    return array


def sizes_of(given: Mapping[str, Any], wanted: runtime.Signature) -> dict[str, int]:
    """The sizes that a dataset's arrays fix for all inputs, by the names of their axes."""
    import numpy as np

    return {
        axis: size
        for name, value in given.items()
        if name in wanted
        for axis, size in zip(wanted[name].shape, np.shape(value), strict=False)
        if isinstance(axis, str) and axis in SHAPES
    }


def _link(
    found: Mapping[str, list[Sample]], name: str, exported: Path, record: Composition
) -> None:
    """Replace generated inputs by the outputs of earlier components, where the shapes agree."""
    feeds: dict[str, list[tuple[str, str]]] = {}
    for link in record.into(name):
        giver, output = split(link.output)
        feeds.setdefault(giver, []).append((output, split(link.input)[1]))
    for giver, pairs in feeds.items():
        try:
            session = runtime.session(model_file.find(exported, giver))
            given = [runtime.run(session, sample) for sample in found[giver]]
        except StageError:
            continue
        for sample, outputs in zip(found[name], given, strict=False):
            for output, taken in pairs:
                if record.loop or outputs[output].shape == sample[taken].shape:
                    sample[taken] = outputs[output]
