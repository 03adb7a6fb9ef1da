"""fp16: half the bytes, float32 inputs and outputs."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.optimum_engine import runtime
from workers.sources import model_file
from workers.sources.errors import one_line, quantize_error


def convert(source: Path, temp: Path, blocked: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The graph in half precision, and what to tell of it."""
    import onnx
    from onnxruntime.transformers.float16 import (
        DEFAULT_OP_BLOCK_LIST,
        convert_float_to_float16,
    )

    typed = temp / "typed"
    typed.mkdir()
    model_file.link(source, typed, shutil.copyfile)
    runtime.add_types(typed, temp / "types")
    model = model_file.load(typed / model_file.MODEL)
    with warnings.catch_warnings(record=True) as truncated:
        warnings.simplefilter("always")
        try:
            model = convert_float_to_float16(
                model,
                keep_io_types=True,
                disable_shape_infer=True,
                op_block_list=[*DEFAULT_OP_BLOCK_LIST, *blocked],
            )
        except (ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
            raise quantize_error(f"fp16 conversion failed: {one_line(error)}") from error
    halves = sum(t.data_type == onnx.TensorProto.FLOAT16 for t in model.graph.initializer)
    floats = sum(t.data_type == onnx.TensorProto.FLOAT for t in model.graph.initializer)
    del model.graph.value_info[:]
    return model, {
        "types": {"float16": halves, "float": floats},
        "truncated_weights": len(truncated),
    }
