"""The bytes of weights that lie beside a graph: read, mapped and written one tensor at a time.

So a stage that leaves most weights as they are needs no memory for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from workers.sources.errors import export_error
from workers.sources.links import own_file
from workers.sources.onnx_graph import External, beside, tensor_bytes, tensors

_SMALL = 1024
"""Tensors below this stay inside: shapes and scalars, which shape inference must see."""
_COPIED = 16 * 1024**2
"""Bytes that are in memory while a tensor is copied."""
_VALUES = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
"""Where a graph itself has the values of a tensor."""


def take_in(tensor: Any, folder: Path) -> None:
    """Read the bytes of a tensor into it, if they lie beside its graph.

    onnx's own reader of external data refuses files with several hard links, which the inputs of a
    stage have.
    """
    where = beside(tensor)
    if where is None:
        return
    with _opened(tensor, where, folder) as stream:
        tensor.raw_data = stream.read(tensor_bytes(tensor))
    tensor.ClearField("data_location")
    del tensor.external_data[:]


def values(tensor: Any, folder: Path) -> Any:
    """The values of a tensor as an array: mapped, not read, where they lie beside its graph."""
    import numpy as np
    from onnx import helper, numpy_helper

    where = beside(tensor)
    if where is None or not all(tensor.dims):
        return numpy_helper.to_array(tensor)
    _opened(tensor, where, folder).close()
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    shape = tuple(tensor.dims) or (1,)
    mapped = np.memmap(folder / where.location, dtype, "r", where.offset, shape)
    return np.asarray(mapped).reshape(tuple(tensor.dims))


def write(model: Any, file: Path, source: Path | None) -> None:
    """Write all large weights of a graph into one file and let the graph refer to it.

    `source`: the folder of the weights that the graph was loaded without.
    """
    with file.open("wb") as stream:
        for tensor in tensors(model):
            where = beside(tensor)
            if tensor_bytes(tensor) < _SMALL:
                if where is not None:
                    take_in(tensor, _known(source))
                continue
            if where is None and not tensor.HasField("raw_data"):
                continue
            offset = stream.tell()
            stream.writelines(pieces(tensor, source))
            refer(tensor, file.name, offset, stream.tell() - offset)


def write_apart(tensor: Any, arrays: Iterable[Any], file: Path) -> None:
    """Write arrays, one after the other, as the values of a tensor into a file beside its graph."""
    with file.open("wb") as stream:
        stream.writelines(array.tobytes() for array in arrays)
        refer(tensor, file.name, 0, stream.tell())


def pieces(tensor: Any, folder: Path | None) -> Iterator[bytes]:
    """The bytes of a tensor as external data has them, a part at a time if they lie beside its
    graph."""
    from onnx import numpy_helper

    where = beside(tensor)
    if where is not None:
        left = tensor_bytes(tensor)
        with _opened(tensor, where, _known(folder)) as stream:
            while left:
                part = stream.read(min(left, _COPIED))
                yield part
                left -= len(part)
    elif tensor.HasField("raw_data"):
        yield tensor.raw_data
    else:
        yield numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data


def _opened(tensor: Any, where: External, folder: Path) -> BinaryIO:
    """The file of a tensor's bytes at their beginning, when all of them are there."""
    size = tensor_bytes(tensor)
    try:
        stream = own_file(folder, where.location).open("rb")
    except FileNotFoundError as error:
        raise export_error(f"the weights in {where.location} are missing") from error
    if stream.seek(0, 2) < where.offset + size or where.length not in {0, size}:
        stream.close()
        raise export_error(f"the weights of '{tensor.name}' in {where.location} are incomplete")
    stream.seek(where.offset)
    return stream


def refer(tensor: Any, name: str, offset: int, length: int) -> None:
    """Let a tensor have its bytes in a file beside its graph."""
    for field in _VALUES:
        tensor.ClearField(field)
    del tensor.external_data[:]
    for key, value in (("location", name), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    tensor.data_location = 1


def _known(source: Path | None) -> Path:
    if source is None:
        raise ValueError("the graph was loaded without its weights, but nobody says from where")
    return source
