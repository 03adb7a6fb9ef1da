"""The inputs stage: what a model is calibrated and verified on, the same for all its targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from workers.engine import StageError, StageJob
from workers.optimum_engine import plain_inputs, runtime, samples, shapes, towers
from workers.optimum_engine.layout import READY, SHAPES
from workers.optimum_engine.parts import Parts, parts
from workers.sources import load, model_file
from workers.sources.errors import listed, one_line, quantize_error
from workers.sources.scratch import seed_everything
from workers.sources.tasks import exporter_task

_ONES = ("attention_mask", "pixel_mask")
_DATASET_SAMPLES = 32
Make = Callable[[runtime.Signature, Mapping[str, int]], dict[str, Any]]
"""Makes a sample for a graph, with these sizes for its open axes."""


def run(job: StageJob, _temp: Path) -> Mapping[str, Any]:
    """Make the samples of every component."""
    exported = job.inputs["export"]
    if job.params["task"] == READY:
        return _ready(job, exported)
    facts: dict[str, Any] = {}
    task = exporter_task(job.params["task"])
    config = load.read_config(exported)
    padded = towers.splits(config, task)
    sizes = shapes.base_shapes(config, exported, job.params.get("shapes", {}), padded=padded)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, part in _parts(config, task, exported).items():
        job.progress(f"making inputs {name}".rstrip())
        folder = model_file.find(exported, name)
        wanted = runtime.signature(folder / model_file.MODEL)
        found[name] = _samples(job, name, partial(_generate, part[1]), wanted, sizes)
        _chain(found, name, exported, wanted)
        samples.save(found[name], job.out / name)
        facts[name or "."] = _told(found[name][0])
    return {
        "samples": min(len(sets) for sets in found.values()),
        "origin": "dataset" if "dataset" in job.params else "generated",
        "inputs": facts,
    }


def _ready(job: StageJob, exported: Path) -> Mapping[str, Any]:
    """Samples for a ready ONNX file; a dataset that has every input decides all sizes."""
    wanted = runtime.signature(exported / model_file.MODEL)
    asked = job.params.get("shapes", {})
    sizes = asked if "dataset" in job.params else plain_inputs.settle(exported, wanted, asked)
    made = _samples(job, "", plain_inputs.generate, wanted, sizes)
    samples.save(made, job.out)
    return {
        "samples": len(made),
        "origin": "dataset" if "dataset" in job.params else "generated",
        "inputs": {".": _told(made[0])},
    }


def _told(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {"dtype": str(array.dtype), "shape": list(array.shape)}
        for key, array in sorted(sample.items())
    }


def _parts(config: Any, task: str, exported: Path) -> Parts:
    model = load.skeleton(config, task)
    if hasattr(config, "use_cache"):
        model.config.use_cache = task.endswith("-with-past")
    return parts(model, task, exported)


def _samples(
    job: StageJob, component: str, make: Make, wanted: runtime.Signature, sizes: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The dataset's samples, completed by generated inputs, or generated ones alone."""
    dataset = job.request.model.get("dataset") if "dataset" in job.params else None
    if not dataset:
        count, given = int(job.params["samples"]), []
    else:
        limit = int(dataset.get("samples", _DATASET_SAMPLES))
        given = samples.read_dataset(Path(dataset["path"]), component, limit)
        count = len(given)
        sizes = {**sizes, **_sizes_of(given[0], wanted)}
    made = []
    for index in range(count):
        seed_everything(int(job.params["seed"]) + index)
        sample = make(wanted, sizes)
        if given:
            sample |= _fitting(given[index], wanted)
        made.append(sample)
    _check_even(made)
    return made


def _generate(config: Any, wanted: runtime.Signature, sizes: Mapping[str, int]) -> dict[str, Any]:
    """One sample from the model's own generators, in the names, types and ranks of its graph."""
    import numpy as np

    try:
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
        name: _plausible(name, np.asarray(flat[name], dtype=spec.dtype))
        for name, spec in wanted.items()
    }


def _plausible(name: str, array: Any) -> Any:
    """Masks that hide nothing and positions that count: random ones are no typical input."""
    import numpy as np

    if name.endswith(_ONES):
        return np.ones_like(array)
    if name.endswith("position_ids") and array.ndim >= 1:
        return np.broadcast_to(np.arange(array.shape[-1], dtype=array.dtype), array.shape).copy()
    return array


def _fitting(given: Mapping[str, Any], wanted: runtime.Signature) -> dict[str, Any]:
    import numpy as np

    if unknown := set(given) - set(wanted):
        raise quantize_error(
            f"the dataset has an array '{min(unknown)}' that is no input of the model",
            f"its inputs: {listed(wanted)}",
        )
    fitting = {}
    for name, value in given.items():
        array = np.asarray(value, dtype=wanted[name].dtype)
        shape = wanted[name].shape
        if array.ndim != len(shape) or any(
            isinstance(dim, int) and dim != size
            for dim, size in zip(shape, array.shape, strict=True)
        ):
            raise quantize_error(
                f"the dataset's '{name}' has the shape {list(array.shape)}, the model takes "
                f"{list(shape)}"
            )
        fitting[name] = array
    return fitting


def _sizes_of(given: Mapping[str, Any], wanted: runtime.Signature) -> dict[str, int]:
    """The sizes that a dataset's arrays settle for all inputs, by the names of their axes."""
    import numpy as np

    return {
        axis: size
        for name, value in given.items()
        if name in wanted
        for axis, size in zip(wanted[name].shape, np.shape(value), strict=False)
        if isinstance(axis, str) and axis in SHAPES
    }


def _check_even(made: list[dict[str, Any]]) -> None:
    for sample in made[1:]:
        for name, array in sample.items():
            if array.shape != made[0][name].shape:
                raise quantize_error(
                    f"samples differ in the shape of '{name}': {list(made[0][name].shape)} and "
                    f"{list(array.shape)}",
                    "pad or cut the dataset to one shape",
                )


def _chain(
    found: Mapping[str, list[dict[str, Any]]], name: str, exported: Path, wanted: runtime.Signature
) -> None:
    """Feed a decoder what its encoder really gives instead of noise, where the shapes agree."""
    key = "encoder_hidden_states"
    if name == "encoder" or "encoder" not in found or key not in wanted:
        return
    try:
        session = runtime.session(exported / "encoder" / model_file.MODEL)
        hidden = [runtime.run(session, sample) for sample in found["encoder"]]
    except StageError:
        return
    for sample, outputs in zip(found[name], hidden, strict=False):
        states = outputs.get("last_hidden_state")
        if states is not None and states.shape == sample[key].shape:
            sample[key] = states
