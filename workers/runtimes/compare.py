"""The distance of outputs from the reference, over all sets of inputs; runs in the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SETS = 3
"""How many of the engine's input values a model is run on to judge it."""
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
