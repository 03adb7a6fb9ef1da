"""Values in the host: read from sample files or made from the graph's own shapes, and compared."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workers.runtimes.session import Port
from workers.samples import datasets, files
from workers.sources.errors import one_line

SETS = 3
"""How many of the engine's input values a model is run on to judge it."""
Feeds = dict[str, Any]


def read(path: Path, component: str, limit: int) -> list[Feeds]:
    """At most `limit` samples; a file for all components names its arrays COMPONENT/INPUT."""
    return [_own(one, component) for one in datasets.read(path, limit)]


def first(path: Path, component: str, ports: Sequence[Port]) -> Feeds:
    """The first sample of a file, or the only one of a file that has values as the graph takes
    them."""
    if path.suffix == ".npz":
        one = _own(files.sample(path), component)
        if any(port.shape and one[port.name].ndim == len(port.shape)
               for port in ports if port.name in one):  # fmt: skip
            return one
    return read(path, component, 1)[0]


def _own(one: Feeds, component: str) -> Feeds:
    return {name.removeprefix(f"{component}/"): value for name, value in one.items()}


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
        answer["error"] = one_line(error)


def feeds(sample: Mapping[str, Any], ports: Sequence[Port], number: int = 1) -> Feeds:
    """The values of a sample that a graph takes, in its types. Raises `Misfit`."""
    import numpy as np

    found = {}
    for port in ports:
        if port.name not in sample:
            raise Misfit(f"set {number} of the input values has no value for input {port.name}")
        value = np.asarray(sample[port.name], dtype=port.dtype or None)
        if not port.fits(value.shape):
            raise Misfit(
                f"set {number} of the input values has the shape {list(value.shape)} for input "
                f"{port.name}, which takes {list(port.shape)}"
            )
        found[port.name] = value
    return found


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


Outputs = Mapping[str, Any]


def compare(found: Sequence[Outputs], wanted: Sequence[Outputs]) -> dict[str, Any]:
    """For every output of the reference, the worst numbers over all sets.

    `problem`: the values are wrong; `absent`: there is nothing to compare, and `shapes` says why.
    """
    names = list(wanted[0]) if wanted else []
    pairs = list(zip(found, wanted, strict=True))
    return {
        name: _worst([_one(one.get(name), want[name]) for one, want in pairs]) for name in names
    }


def describe(sets: Sequence[Outputs]) -> dict[str, Any]:
    """Type and shapes of every output, and whether all values are finite."""
    return {
        name: {
            "dtype": str(getattr(value, "dtype", type(value).__name__)),
            "shapes": _shapes([one[name] for one in sets]),
            "finite": all(_finite(one[name]) for one in sets),
        }
        for name, value in (sets[0] if sets else {}).items()
    }


def _shapes(several: Sequence[Any]) -> list[list[int]]:
    """Every shape once, in the order of the sets."""
    return [list(one) for one in dict.fromkeys(getattr(value, "shape", ()) for value in several)]


def _finite(value: Any) -> bool:
    import numpy as np

    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return True
    return bool(np.isfinite(value).all())


def _one(found: Any, wanted: Any) -> dict[str, Any]:
    import numpy as np

    if not isinstance(wanted, np.ndarray) or wanted.dtype.kind not in "fiubOU":
        return {}  # sequences: the rung `shapes` judges them
    if found is None:
        return {"absent": "the output is missing"}
    if found.shape != wanted.shape:
        return {"absent": f"its shape is {list(found.shape)}, the export's {list(wanted.shape)}"}
    if not wanted.size:
        return {"cosine": 1.0, "error": 0.0, "max_abs": 0.0}
    if wanted.dtype.kind != "f":
        return {"agree": float((found == wanted).mean())}
    return _distance(found.astype(np.float64).ravel(), wanted.astype(np.float64).ravel())


def _distance(found: Any, wanted: Any) -> dict[str, Any]:
    import numpy as np

    same = ~(np.isfinite(wanted))  # the export itself may mask with infinities
    if same.any():
        if not np.array_equal(found[same], wanted[same], equal_nan=True):
            return {"problem": "NaN or infinity where the export is finite, or the reverse"}
        found, wanted = found[~same], wanted[~same]
    if not np.isfinite(found).all():
        return {"problem": "it holds NaN or infinity"}
    ours, theirs = float(np.linalg.norm(found)), float(np.linalg.norm(wanted))
    gap = found - wanted
    if theirs == 0 or ours == 0:
        cosine, error = float(ours == theirs), float(ours != theirs)
    else:
        cosine = min(1.0, float(found @ wanted) / (ours * theirs))
        error = float(np.linalg.norm(gap)) / theirs
    return {"cosine": cosine, "error": error, "max_abs": float(np.abs(gap).max(initial=0.0))}


def _worst(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    for key in ("problem", "absent"):
        for one in several:
            if key in one:
                return one
    worst: dict[str, Any] = {}
    for one in several:
        for key, value in one.items():
            choose = min if key in {"cosine", "agree"} else max
            worst[key] = choose(worst.get(key, value), value)
    return {key: float(f"{value:.7g}") for key, value in worst.items()}


def joined(sets: Sequence[tuple[Any, Any]], scale: float, bias: float) -> Any:
    """The scaled cosine of every left value with every right one."""
    import numpy as np

    def unit(values: list[Any]) -> Any:
        rows = np.concatenate([np.atleast_2d(value) for value in values]).astype(np.float64)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    left, right = unit([pair[0] for pair in sets]), unit([pair[1] for pair in sets])
    return scale * (left @ right.T) + bias
