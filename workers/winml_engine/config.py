"""The first stages: random weights, and `winml config`, a model's configuration for all targets.

A target changes three settings, each applied in the stage that uses it: the compatibility of the
export (`export`), the flags that the analyzer finds (`optimize`), the precision (`quantize`).
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from machine.disk import is_full
from matrix.status import FailureClass
from workers.engine import SOURCE, StageError, StageJob, StageReport
from workers.sources import load, source
from workers.sources.errors import disk_error, failing, one_line, unsupported
from workers.sources.load import exporter_task
from workers.sources.temporary import temporary_folder

MODEL = "model.onnx"
FILE = "winml_build_config.json"
STAND_IN: Mapping[str, Any] = {"device": "npu", "precision": "w8a16", "ep": "qnn"}
"""A target with calibrated quantization, so that the configuration has settings for it."""


@contextlib.contextmanager
def failing_as(failure: FailureClass, what: str, hint: str = "") -> Iterator[None]:
    """Turn what winml-cli's code raises into a `StageError` that says what was tried.

    The class comes from the type of an exception and its error number, never from its text.
    """
    # winml-cli, Transformers, Optimum and ONNX Runtime raise anything (AttributeError for a missing
    # configuration value, pybind errors, ...): all of it means that this stage failed.
    stage_error = partial(StageError, failure=failure)
    with failing(stage_error, what, hint):
        try:
            yield
        except ImportError as error:
            missing = "a package of winml-cli's environment cannot be imported"
            repair = "modelmill doctor; modelmill engine install winml"
            raise unsupported(f"{what}: {missing}: {one_line(error)}", repair) from error
        except OSError as error:
            if is_full(error) or getattr(error, "disk_full", False):
                room = "free some space or set --disk-budget"
                raise disk_error(f"{what}: the disk is full", room) from error
            raise stage_error(f"{what}: {one_line(error)}", hint) from error


def weights(job: StageJob) -> StageReport:
    """A seeded random model as a folder: `config.json` and `model.safetensors`.

    They are the weights of the optimum engine.
    """
    job.progress("making the random weights")
    with failing_as(FailureClass.EXPORT, "the random model cannot be made"):
        model, _ = load.load(job.request, None, exporter_task(job.params["task"]))
        model.config.architectures = [type(model).__name__]
        model.save_pretrained(str(job.out), safe_serialization=True)
    return StageReport({"model_class": type(model).__name__})


def run(job: StageJob) -> StageReport:
    """Write one configuration, or one for each component of a composite."""
    job.progress("resolving the configuration")
    with temporary_folder(job.out) as temporary:
        folder = model_folder(job, temporary)
        with failing_as(
            FailureClass.EXPORT,
            "winml-cli has no configuration for this model",
            "winml inspect shows what winml-cli knows of it",
        ):
            configs = _authored(job) if "recipe" in job.params else _generated(job, folder)
    for name, config in configs.items():
        target = job.out / name
        target.mkdir(exist_ok=True)
        text = json.dumps(_portable(config.to_dict()), indent=1, sort_keys=True)
        (target / FILE).write_text(text, encoding="utf-8")
    tasks = {name: config.loader.task for name, config in configs.items()}
    classes = {name: config.loader.model_class for name, config in configs.items()}
    return StageReport({"tasks": tasks, "model_classes": classes})


def read(folder: Path) -> dict[str, Any]:
    """A configuration that this stage wrote."""
    found: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return found


def components(folder: Path) -> list[str]:
    """The components in the output of this stage; none for a single model."""
    return sorted(file.parent.name for file in folder.glob(f"*/{FILE}"))


def model_folder(job: StageJob, scratch: Path) -> Path:
    """The model's folder, as `winml build -m FOLDER` takes it."""
    if "weights" in job.inputs:
        return job.inputs["weights"]
    if SOURCE in job.inputs:
        source.folder_of(job.request, None, scratch)  # refuses incomplete weights
        return job.inputs[SOURCE]
    return source.folder_of(job.request, job.params.get("commit"), scratch)


def remote_code(job: StageJob) -> bool:
    """Whether both catalog and flag allow the model's own code to run."""
    return source.allowed(job.request)["remote_code"]


def _generated(job: StageJob, folder: Path) -> dict[str, Any]:
    from transformers import AutoConfig
    from winml.modelkit.loader.resolution import resolve_composite, resolve_task

    asked = job.params["task"]
    found = AutoConfig.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=remote_code(job)
    )
    try:
        detected = resolve_task(found)
    except ValueError:
        if not asked:
            raise  # ambiguous without a task
        detected = None
    if detected and asked in ("", detected.task, detected.optimum_task):
        whole = _generate(job, folder, None)
        parts = detected.composite or {}
        return {
            name: _with_settings_of(whole, _generate(job, folder, task))
            for name, task in parts.items()
        } or {"": whole}
    parts = resolve_composite(found.model_type, asked) or {}
    return {name: _generate(job, folder, task) for name, task in parts.items()} or {
        "": _generate(job, folder, asked)
    }


def _generate(job: StageJob, folder: Path, task: str | None) -> Any:
    from winml.modelkit.config import generate_build_config

    opset = job.params.get("opset")
    return generate_build_config(
        str(folder),
        task=task,
        trust_remote_code=remote_code(job),
        shape_config=job.params.get("shapes"),
        override={"export": {"opset_version": opset}} if opset else None,
        **STAND_IN,
    )


def _with_settings_of(whole: Any, part: Any) -> Any:
    """`winml build` calibrates every component with the settings found for the whole model."""
    own = part.quant
    part.quant = copy.deepcopy(whole.quant)
    part.quant.task, part.quant.model_id = own.task, own.model_id
    part.quant.model_type = own.model_type
    return part


def _authored(job: StageJob) -> dict[str, Any]:
    from winml.modelkit.config import WinMLBuildConfig

    configs = {
        name: WinMLBuildConfig.from_dict(dict(sections))
        for name, sections in job.params["recipe"].items()
    }
    for name, config in configs.items():
        if config.export is None or not config.loader.task:
            raise unsupported(f"the recipe {name} has no export section or no task".strip())
        if "opset" in job.params:
            config.export.opset_version = job.params["opset"]
    return configs


def _portable(config: dict[str, Any]) -> dict[str, Any]:
    """Remove the settings that belong to a target or a machine."""
    config["compile"] = None
    (config.get("export") or {}).pop("compatibility", None)
    if config.get("quant"):
        config["quant"]["model_id"] = None
    return config
