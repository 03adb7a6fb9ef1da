"""A Transformers model in memory, fp32, from a checked folder or from a seed.

Optimum's table says which tasks and architectures can be exported.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machine.files import read_json
from matrix.model import SourceKind
from workers.engine import Request
from workers.sources import checkpoint
from workers.sources.checkpoint import Checkpoint
from workers.sources.errors import export_error, failing, listed, unsupported
from workers.sources.source import allowed, configuration, configured, refuse_kernels


def skeleton(config: Any, task: str) -> Any:
    """The model without weights, which is enough to generate its inputs."""
    import torch

    with torch.device("meta"):
        return _from_config(config, task).eval()


def load(request: Request, folder: Path | None, task: str) -> tuple[Any, Checkpoint | None]:
    """The model of a request, ready for the export, and its checkpoint if it has one."""
    source = request.model["source"]
    found: Checkpoint | None = None
    if folder is None or SourceKind(source["kind"]) is SourceKind.RANDOM:
        model = _random(source, task)
    else:
        model, found = _pretrained(folder, request, task)
    _prepare(model, folder, task)
    return model, found


def read_config(folder: Path, *, remote_code: bool = False) -> Any:
    """The configuration in a model folder."""
    from transformers import CONFIG_MAPPING, AutoConfig

    hint = "a newer Transformers or remote code may be needed"
    kinds = (OSError, ValueError, KeyError, TypeError, AttributeError)
    with failing(export_error, "its config.json cannot be used", hint, *kinds):
        found = read_json(folder / "config.json")
        kind = found.get("model_type") if isinstance(found, dict) else None
        if isinstance(kind, str) and kind not in CONFIG_MAPPING and "auto_map" not in found:
            text = f"the installed Transformers has no architecture '{kind}'"
            advice = "correct model_type in its config.json, install a Transformers that has it, or"
            raise unsupported(text, f"{advice} give a ready ONNX file as onnx in the catalog")
        return AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=remote_code
        )


def _random(source: Mapping[str, Any], task: str) -> Any:
    import torch

    values = configuration(source)
    refuse_kernels(values, source["ref"])
    config = _without_kernels(configured(source["ref"], values))
    check_supported(config.model_type, task)
    seed_everything(int(source.get("seed") or 0))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the number of threads must not change the random values
    try:
        return _from_config(config, task).float()
    finally:
        torch.set_num_threads(threads)


def _pretrained(folder: Path, request: Request, task: str) -> tuple[Any, Checkpoint]:
    import torch

    allow = allowed(request)
    config = _without_kernels(read_config(folder, remote_code=allow["remote_code"]))
    check_supported(config.model_type, task)
    model_class = _model_class(config, task)
    seed_everything(0)  # a head that the checkpoint lacks gets random weights
    with failing(export_error, "the model cannot be loaded", "", OSError, ValueError, RuntimeError):
        model, info = model_class.from_pretrained(
            str(folder),
            config=config,
            torch_dtype=torch.float32,
            local_files_only=True,
            use_safetensors=None if allow["pickle"] else True,
            trust_remote_code=allow["remote_code"],
            ignore_mismatched_sizes=True,  # reported below, all of them
            output_loading_info=True,
        )
    found = checkpoint.read(model, info)
    tasks_manager().standardize_model_attributes(model, library_name="transformers")
    return model, found


def _model_class(config: Any, task: str) -> Any:
    what = f"Transformers has no model class for '{task}'"
    named = None
    # For these tasks a model type has several kinds of classes (CTC and seq2seq speech models).
    if task.startswith(("automatic-speech-recognition", "reinforcement-learning")):
        named = next(map(str, getattr(config, "architectures", None) or ()), None)
    with failing(export_error, what, "", KeyError, ValueError, AttributeError):
        return tasks_manager().get_model_class_for_task(
            task.removesuffix("-with-past"),
            framework="pt",
            model_type=config.model_type,
            model_class_name=named,
            library="transformers",
        )


_KERNELS = "use_mamba_kernels"
"""What some configurations ask for, and raise for where there is no GPU."""


def _without_kernels(config: Any) -> Any:
    if hasattr(config, _KERNELS):
        setattr(config, _KERNELS, False)
    return config


def _from_config(config: Any, task: str) -> Any:
    model_class = _model_class(config, task)
    what = f"no model of {config.model_type} for '{task}' can be made"
    kinds = (ValueError, TypeError, RuntimeError, KeyError, AttributeError)
    with failing(export_error, what, "correct the config in the catalog", *kinds):
        if hasattr(model_class, "from_config"):
            return model_class.from_config(config)
        return model_class(config)


def _prepare(model: Any, folder: Path | None, task: str) -> None:
    model.eval()
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = task.endswith("-with-past")
    if task == "text-classification" and getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = _pad_token(folder, model.config)


def _pad_token(folder: Path | None, config: Any) -> int:
    if folder is not None:
        from transformers import AutoTokenizer

        try:
            found = AutoTokenizer.from_pretrained(str(folder), local_files_only=True).pad_token_id
        except (OSError, ValueError, ImportError):
            found = None  # without a tokenizer the config decides
        if found is not None:
            return int(found)
    end = getattr(config, "eos_token_id", None)
    return int(end) if isinstance(end, int) else 0


def seed_everything(seed: int) -> None:
    """Seed every random generator that Optimum and Transformers use."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # Optimum uses the global generator
    # That of the CPU, where all stages compute: seeding the others as well describes the call stack
    # for each of them, which takes longer than making a sample.
    torch.default_generator.manual_seed(seed)


def tasks_manager() -> Any:
    """Optimum's `TasksManager` with its ONNX table filled.

    The table fills as a side effect of importing the ONNX configurations. A stage can be the first
    thing that a process does, so no stage may rely on an earlier one to have imported them.
    """
    import optimum.exporters.onnx.model_configs  # noqa: F401 - fills the table
    from optimum.exporters.tasks import TasksManager

    return TasksManager


def exporter_task(task: str) -> str:
    """The exporter's word for a task. Raises `StageError` for one it does not know."""
    manager = tasks_manager()
    plain = str(manager.map_from_synonym(task))
    known = set(manager.get_all_tasks())
    if plain.removesuffix("-with-past") not in known:
        raise export_error(f"the exporter knows no task '{task}'", f"known tasks: {listed(known)}")
    return plain


def check_supported(model_type: str, task: str) -> None:
    """Raise `StageError` unless the exporter can export this architecture for this task."""
    try:
        tasks = tasks_manager().get_supported_tasks_for_model_type(
            model_type, "onnx", library_name="transformers"
        )
    except KeyError as error:
        raise export_error(
            f"the exporter does not support the architecture '{model_type}'",
            "see Optimum's list of ONNX architectures",
        ) from error
    if task not in tasks:
        raise export_error(
            f"the exporter cannot export {model_type} for '{task}'",
            f"for {model_type} it knows: {listed(tasks)}",
        )
