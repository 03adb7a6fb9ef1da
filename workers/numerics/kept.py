"""The outputs of a reference, as rows: all of them or a selection, without what a mask hides.

A row is a line along the axis that decisions are taken on, which is the last one for nearly all
outputs. A selection keeps whole rows, so that the largest value of a row can be found in it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Shapes = Mapping[str, Sequence[int | str | None]]
"""Inputs or outputs of a graph with their declared shapes."""
MOST = 8 << 20
"""Bytes of an output that are compared: the mean of more rows says nothing else."""
LAST = -1


@dataclass(frozen=True, slots=True)
class Kept:
    """One output of one sample."""

    values: Any
    """The rows."""
    shape: tuple[int, ...]
    """Of the whole output."""
    numbers: Any
    """Of the rows, among all of the output."""
    counts: Any = None
    """Which values of the rows count; None: all."""
    axis: int = LAST

    def of(self, value: Any) -> Any:
        """The same rows of another output of that shape."""
        return _lines(value, self.axis)[self.numbers]


def keep(
    value: Any, counts: Any = None, *, name: str = "", most: int | None = MOST, axis: int = LAST
) -> Kept:
    """The rows of an output that count, and no more of them than fit into `most` bytes.

    `counts`: false for hidden values, of a shape that broadcasts to the output's. Outputs of equal
    name and shape keep the same rows where they can.
    """
    import numpy as np

    lines = _lines(value, axis)
    numbers, kept = np.arange(len(lines)), None
    if counts is not None:
        kept = _lines(np.broadcast_to(counts, value.shape), axis)
        numbers = numbers[kept.any(axis=1)]
    size = max(lines.shape[1] * lines.itemsize, 1)
    if most is not None and len(numbers) * size > most:
        order = np.random.default_rng([zlib.crc32(name.encode()), len(lines)]).permutation(
            len(lines)
        )
        numbers = np.sort(order[np.isin(order, numbers)][: max(most // size, 1)])
    kept = None if kept is None or kept[numbers].all() else kept[numbers]
    return Kept(lines[numbers], value.shape, numbers, kept, axis)


def to_arrays(name: str, kept: Kept) -> dict[str, Any]:
    """For an `.npz`: the output as it is if it is whole, else its rows and their numbers."""
    import numpy as np

    found: dict[str, Any] = {name: kept.values}
    width = kept.values.shape[1]
    if kept.axis == LAST and len(kept.values) * width == np.prod(kept.shape, dtype=int):
        found[name] = kept.values.reshape(kept.shape)
    else:
        found[f"{name}#rows"] = kept.numbers.astype(np.int64)
        found[f"{name}#shape"] = np.asarray(kept.shape, np.int64)
        found[f"{name}#axis"] = np.asarray(kept.axis, np.int64)
    if kept.counts is not None:
        found[f"{name}#counts"] = kept.counts
    return found


def from_arrays(arrays: Mapping[str, Any]) -> dict[str, Kept]:
    """What `to_arrays` has written. Raises `KeyError` or `ValueError` for anything else."""
    import numpy as np

    found = {}
    for name, value in arrays.items():
        if "#" in name:
            continue
        counts = arrays.get(f"{name}#counts")
        if f"{name}#rows" not in arrays:
            lines = _lines(value, LAST)
            found[name] = Kept(lines, value.shape, np.arange(len(lines)), counts)
            continue
        shape = tuple(int(size) for size in arrays[f"{name}#shape"])
        axis = int(arrays[f"{name}#axis"])
        found[name] = Kept(value, shape, arrays[f"{name}#rows"], counts, axis)
    return found


def counted(
    sample: Mapping[str, Any], inputs: Shapes, outputs: Mapping[str, Any], declared: Shapes
) -> dict[str, Any]:
    """Which values of the outputs count: not those at positions that a mask of the sample hides.

    A mask hides positions of an output along the axis that is declared with the name of the mask's
    second axis; where sizes are fixed, along the second axis if it is as long, of a cache along its
    third. `declared`: the shapes of the outputs.
    """
    import numpy as np

    found: dict[str, Any] = {}
    for name, mask in sample.items():
        if "mask" not in name or name not in inputs or np.ndim(mask) != 2 or np.all(mask != 0):
            continue
        size = inputs[name][1]
        for output, value in outputs.items():
            shape, dims = np.shape(value), declared.get(output, ())
            place = _place(size, dims, shape, np.shape(mask))
            if place is None:
                continue
            lines = [1] * len(shape)
            lines[0], lines[place] = np.shape(mask)
            shown = (np.asarray(mask) != 0).reshape(lines)
            found[output] = found[output] & shown if output in found else shown
    return found


def _place(
    size: int | str | None, dims: Sequence[Any], shape: Sequence[int], mask: Sequence[int]
) -> int | None:
    """The axis of an output that a mask of this shape speaks of."""
    if len(shape) < 2 or shape[0] != mask[0]:
        return None
    if isinstance(size, str):
        places = [at for at, dim in enumerate(dims) if dim == size and shape[at] == mask[1]]
    else:
        places = [1] if shape[1] == mask[1] > 1 else []
    if not places and len(shape) == 4 and shape[2] == mask[1] > 1:
        return 2  # of a cache, whose length an export calls the sum of two others
    return places[0] if places else None


def _lines(value: Any, axis: int) -> Any:
    """The rows of an array, in two dimensions."""
    import numpy as np

    array = np.atleast_1d(np.asarray(value))
    width = array.shape[axis]
    return np.moveaxis(array, axis, -1).reshape(-1, width) if array.size else np.empty((0, width))
