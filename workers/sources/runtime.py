"""ONNX Runtime as the stages use it: on the CPU, deterministic, quiet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.engine import version
from workers.session import CPU, Port
from workers.sources import model_file, onnx_graph
from workers.sources.errors import failing, optimize_error

DISTRIBUTIONS = (
    "onnxruntime", "onnxruntime-windowsml", "onnxruntime-qnn", "onnxruntime-openvino",
    "onnxruntime-directml", "onnxruntime-gpu",
)  # fmt: skip
"""Those that provide the `onnxruntime` module; the first one found is the tool."""
_KINDS = {
    # ONNX Runtime's name of a type -> its number in ONNX
    "tensor(float)": 1, "tensor(uint8)": 2, "tensor(int8)": 3, "tensor(uint16)": 4,
    "tensor(int16)": 5, "tensor(int32)": 6, "tensor(int64)": 7, "tensor(bool)": 9,
    "tensor(float16)": 10, "tensor(double)": 11,
}  # fmt: skip


_NO_PREPACKING = ("session.disable_prepacking", "1")
"""Packed weights are copies: those of a large model would take as much memory as the model."""
_NO_SPINNING = ("session.intra_op.allow_spinning", "0")
"""Threads that wait actively take twice the processor time, and end no sooner on a busy machine."""


Signature = Mapping[str, Port]
"""The inputs of a graph by name."""


def installed() -> str:
    """The version of ONNX Runtime here; empty if there is none. Imports nothing."""
    return next((text for name in DISTRIBUTIONS if (text := version(name))), "")


def session(file: Path, options: Any = None) -> Any:
    """A session that computes the graph without optimizing it."""
    import onnxruntime

    options = options or options_for("disabled")
    if _large(file):
        options.add_session_config_entry(*_NO_PREPACKING)
    with failing(optimize_error, "ONNX Runtime cannot load the graph", "", Exception):
        return onnxruntime.InferenceSession(str(file), options, providers=[CPU])


def options_for(level: str) -> Any:
    """Session options for an offline optimization level."""
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.use_deterministic_compute = True
    options.add_session_config_entry(*_NO_SPINNING)
    options.graph_optimization_level = {
        "disabled": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
    }[level]
    return options


def _weights_beside(file: Path) -> list[Path]:
    return list(file.parent.glob("*.data"))


def _large(file: Path) -> bool:
    size = sum(item.stat().st_size for item in (file, *_weights_beside(file)))
    return size > model_file.EXTERNAL_THRESHOLD // 2


def optimize(file: Path, target: Path, level: str, blocked: Sequence[str] = ()) -> None:
    """Let ONNX Runtime rewrite a graph into `target`, with external weights if they are large.

    The same for weights that are external already, which would otherwise stay where they are.
    Never above `extended`: the next level lays out tensors for the CPU of this machine.
    """
    import onnxruntime

    options = options_for(level)
    options.optimized_model_filepath = str(target)
    if _large(file) or _weights_beside(file):
        key = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{key}_file_name", model_file.EXTERNAL)
        options.add_session_config_entry(f"{key}_min_size_in_bytes", "1024")
    options.add_session_config_entry(*_NO_PREPACKING)
    with failing(optimize_error, "ONNX Runtime cannot optimize the graph", "", Exception):
        onnxruntime.InferenceSession(
            str(file), options, providers=[CPU], disabled_optimizers=list(blocked)
        )


def signature(file: Path) -> dict[str, Port]:
    """The inputs of a graph by name, in its order; weights are not read."""
    from onnx.helper import tensor_dtype_to_np_dtype

    return {
        value.name: Port(
            value.name,
            str(tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            tuple(onnx_graph.dims(value)),
        )
        for value in onnx_graph.inputs(onnx_graph.load(file))
    }


def add_types(folder: Path, temp: Path) -> None:
    """Write the type and shape of every tensor into the `model.onnx` of a folder.

    ONNX's own inference stops at ONNX Runtime's operators; a session infers all tensors and reports
    those that are outputs.
    """
    import onnx

    model = model_file.load_graph(folder)
    outputs = [value.name for value in model.graph.output]
    inner = [name for node in model.graph.node for name in node.output if name]
    known = {value.name for value in (*model.graph.input, *model.graph.output)}
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in dict.fromkeys(inner) if name not in known
    )
    found = _inferred(model, folder, temp)
    del model.graph.output[len(outputs) :]
    del model.graph.value_info[:]
    model.graph.value_info.extend(value for name, value in found.items() if name not in known)
    onnx.save(model, str(folder / model_file.MODEL))


def _inferred(model: Any, folder: Path, temp: Path) -> dict[str, Any]:
    from onnx import helper

    values = {}
    for item in session(model_file.save_graph(model, folder, temp)).get_outputs():
        if kind := _KINDS.get(item.type):
            # A session reports [] for a scalar and also for a tensor of unknown rank.
            shape = item.shape or None
            values[item.name] = helper.make_tensor_value_info(item.name, kind, shape)
    return values


def run(ready: Any, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs by name."""
    names = [item.name for item in ready.get_outputs()]
    wanted = {item.name for item in ready.get_inputs()}
    feed = {name: array for name, array in sample.items() if name in wanted}
    with failing(optimize_error, "the graph cannot be run", "", Exception):
        return dict(zip(names, ready.run(names, feed), strict=True))
