"""Input values in the host: read from sample files, or made from the graph's own shapes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workers.runtimes.session import Port, line
from workers.sources import samples

Feeds = dict[str, Any]


def read(path: Path, component: str, limit: int) -> list[Feeds]:
    """At most `limit` samples; a file for all components names its arrays COMPONENT/INPUT."""
    head = f"{component}/"
    return [
        {name.removeprefix(head): value for name, value in one.items()}
        for one in samples.read(path, limit)
    ]


class Misfit(ValueError):
    """Input values do not fit the graph: a missing name, or another shape."""


@contextmanager
def told(answer: dict[str, Any]) -> Iterator[None]:
    """What goes wrong in the block becomes part of the answer, which says where (`at`)."""
    try:
        yield
        answer["at"] = ""
    except Misfit as error:
        answer |= {"at": "feed", "error": str(error)}
    # A runtime raises anything at all; the owner judges it.
    except Exception as error:  # noqa: BLE001
        answer["error"] = line(error)


def feeds(sample: Mapping[str, Any], ports: Sequence[Port], number: int = 1) -> Feeds:
    """The values of a sample that a graph takes, in its types. Raises `Misfit`."""
    import numpy as np

    found = {}
    for port in ports:
        if port.name not in sample:
            raise Misfit(f"set {number} of the input values has no value for input {port.name}")
        value = np.asarray(sample[port.name], dtype=port.dtype or None)
        if not _fits(value.shape, port.shape):
            raise Misfit(
                f"set {number} of the input values has the shape {list(value.shape)} for input "
                f"{port.name}, which takes {list(port.shape)}"
            )
        found[port.name] = value
    return found


def _fits(shape: Sequence[int], dims: Sequence[int | str | None]) -> bool:
    if not dims:
        return True  # a scalar, or a runtime that does not report shapes
    fixed = [dim if isinstance(dim, int) and dim >= 0 else None for dim in dims]
    return len(shape) == len(fixed) and all(
        want in {None, size} for size, want in zip(shape, fixed, strict=True)
    )


def made(ports: Sequence[Port], seed: int, shapes: Mapping[str, Sequence[int]]) -> Feeds:
    """Seeded values for a graph without given inputs.

    Integers are 0 or 1, which are valid in every vocabulary and mask; open dimensions are 1.
    """
    import numpy as np

    found = {}
    for port in ports:
        random = np.random.default_rng([seed, zlib.crc32(port.name.encode())])
        shape = shapes.get(port.name) or [
            dim if isinstance(dim, int) and dim > 0 else 1 for dim in port.shape
        ]
        kind = np.dtype(port.dtype or "float32")
        if "mask" in port.name:
            found[port.name] = np.ones(shape, kind)
        elif kind.kind in "iub":
            found[port.name] = random.integers(0, 2, shape).astype(kind)
        else:
            found[port.name] = random.standard_normal(shape).astype(kind)
    return found
