"""Inputs for a ready ONNX file, derived from its graph alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workers.engine import StageError
from workers.optimum_engine import shapes
from workers.runtimes.session import Port
from workers.sources import model_file, runtime
from workers.sources.errors import quantize_error

_AXES = {
    1: ("batch_size",),
    2: ("batch_size", "sequence_length"),
    3: ("batch_size", "sequence_length", "feature_size"),
    4: ("batch_size", "num_channels", "height", "width"),
}
"""The most likely meaning of the open axes of an input, by its rank."""
_USUAL = {
    "batch_size": 1, "sequence_length": shapes.SEQUENCE, "feature_size": 80, "num_channels": 3,
}  # fmt: skip
_IMAGES = ((224, 224), (640, 640), (48, 320), (32, 32), (512, 512))
"""Heights and widths, tried in this order if neither the file nor the catalog gives them."""
_TOKENS = 100
"""Fewer than any vocabulary has."""


def settle(folder: Path, wanted: runtime.Signature, asked: Mapping[str, int]) -> dict[str, int]:
    """The sizes of open axes with which the graph runs. Raises `StageError` if none do."""
    import numpy as np

    ready = runtime.session(folder / model_file.MODEL)
    np.random.seed(0)
    failed: StageError | None = None
    for sizes in _candidates(wanted, asked):
        try:
            runtime.run(ready, generate(wanted, sizes))
        except StageError as error:
            failed = failed or error
        else:
            return sizes
    reason = failed.args[0] if failed else ""
    raise quantize_error(
        f"this ONNX file runs with none of the usual sizes: {reason}",
        "give the sizes of its open axes as shapes in the catalog, or a dataset",
    )


def generate(wanted: runtime.Signature, sizes: Mapping[str, int]) -> dict[str, Any]:
    """One sample; NumPy's generator is seeded by the caller."""
    return {name: _values(name, port, _shape(port, sizes)) for name, port in wanted.items()}


def _candidates(wanted: runtime.Signature, asked: Mapping[str, int]) -> Iterator[dict[str, int]]:
    usual = {**_USUAL, **asked}
    images = any(len(port.shape) == 4 and _open(port) & {2, 3} for port in wanted.values())
    if not images:
        yield {"height": 1, "width": 1, **usual}
        return
    seen = []
    for height, width in _IMAGES:
        sizes = {"height": height, "width": width, **usual}
        if sizes not in seen:
            seen.append(sizes)
            yield sizes


def _open(port: Port) -> set[int]:
    return {axis for axis, size in enumerate(port.shape) if not _fixed(size)}


def _fixed(size: int | str | None) -> bool:
    return isinstance(size, int) and size > 0


def _shape(port: Port, sizes: Mapping[str, int]) -> list[int]:
    words = _AXES.get(len(port.shape), ("batch_size",))
    shape = []
    for axis, size in enumerate(port.shape):
        if isinstance(size, int) and size > 0:
            shape.append(size)
        elif isinstance(size, str) and size in sizes:
            shape.append(sizes[size])
        else:
            shape.append(sizes.get(words[axis], 1) if axis < len(words) else 1)
    return shape


def _values(name: str, port: Port, shape: list[int]) -> Any:
    import numpy as np

    kind = np.dtype(port.dtype)
    if kind.kind not in "fiub":
        raise quantize_error(
            f"the input '{name}' takes {port.dtype}, for which no values can be made",
            "give the catalog entry a dataset",
        )
    if kind.kind == "f":
        return np.random.uniform(-1, 1, shape).astype(kind)
    plain = name.casefold()
    if kind.kind == "b" or plain.endswith("mask"):
        return np.ones(shape, kind)
    if "token_type" in plain or "segment" in plain:
        return np.zeros(shape, kind)
    if "position" in plain and shape:
        return np.broadcast_to(np.arange(shape[-1], dtype=kind), shape).copy()
    top = 256 if kind == np.uint8 else _TOKENS
    return np.random.randint(0, top, shape).astype(kind)
