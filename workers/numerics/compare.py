"""Error against what varies, and a verdict on it.

    signal = reference - its mean over the samples     noise = found - reference

The figure of an output is the signal-to-noise ratio of its worst sample in decibels: the noise of
that sample against the signal of all. What hardly varies (less than `floor` of its size) is
compared by value, which the row says: `fixed`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.verification import Limit
from workers.numerics.decisions import BOXES, ORDER, agreement, axis_of, kind_of
from workers.numerics.kept import MOST, Kept, Shapes, counted, keep

Outputs = Mapping[str, Any]
Row = dict[str, Any]
MOST_DB = 150.0
"""Told where there is no noise at all."""
_DIGITS = 17
BOX = "pred_boxes"


def compare(
    found: Sequence[Outputs],
    wanted: Sequence[Outputs],
    limit: Limit,
    *,
    task: str = "",
    counts: Sequence[Outputs] = (),
) -> dict[str, Row]:
    """For every output of the reference, its figures over all samples.

    `wanted`: arrays, or `kept.Kept` of a reference that is kept; `counts`: what `kept.counted`
    says of each sample, for arrays. A row has `snr` (decibels, of the worst sample), `overall`,
    `varies` (the signal's share of the size of the values), `max_abs`, the `cosine` of the raw
    values, and where the task decides on the output, `agreement`, `decisions` and `ties`. Or it has
    `problem` (the values are wrong), `absent` (there is nothing to compare), or only `agreement` if
    the values are no floats. It is empty for what is no tensor.
    """
    if not wanted:
        return {}
    shapes = _floats(wanted[0])
    kinds = {name: kind_of(task, name, shapes) for name in shapes}
    sides = {name: _sides(name, found, wanted, counts, kinds.get(name, "")) for name in wanted[0]}
    rows: dict[str, Row] = {}
    for name, pairs in sides.items():
        if isinstance(pairs, dict):
            rows[name] = pairs
            continue
        boxes = sides.get(BOX, ())
        rows[name] = _figures(
            pairs, limit, kinds.get(name, ""), boxes if isinstance(boxes, list) else ()
        )
    return rows


def referred(
    outputs: Outputs,
    sample: Outputs,
    inputs: Shapes,
    declared: Shapes,
    *,
    task: str = "",
    most: float | None = None,
) -> dict[str, Kept]:
    """A reference for one sample: its outputs without what masks of the sample hide, and of large
    ones a selection. `most`: bytes of all together, the smallest output first."""
    tensors = {name: one for name, one in outputs.items() if hasattr(one, "dtype")}
    shown, shapes = counted(sample, inputs, tensors, declared), _floats(tensors)
    found: dict[str, Kept] = {}
    left = most
    for place, (name, one) in enumerate(sorted(tensors.items(), key=lambda item: item[1].nbytes)):
        share = MOST if left is None else int(left / (len(tensors) - place))
        axis = axis_of(kind_of(task, name, shapes) if name in shapes else "")
        found[name] = keep(one, shown.get(name), name=name, most=share, axis=axis)
        left = left if left is None else max(left - found[name].values.nbytes, 0)
    return {name: found[name] for name in tensors}


def exercise(wanted: Sequence[Outputs], limit: Limit, task: str = "") -> dict[str, Row]:
    """How far a reference varies, as rows of `compare` have it: `varies`, `fixed`, and `classes`
    with `decisions` and `ties` where the task decides."""
    told = ("varies", "fixed", "decisions", "ties", "classes")
    rows: dict[str, Row] = {}
    shapes = _floats(wanted[0]) if wanted else {}
    for name in shapes:
        kind = kind_of(task, name, shapes)
        kept = [one[name] for one in wanted]
        row = _figures([(one.values, one) for one in kept], limit, kind, ())
        rows[name] = {key: row[key] for key in told if key in row}
    return rows


def fault(row: Outputs, limit: Limit, reference: str = "the export") -> str:
    """Why an output is not as close to the reference as the limit asks; empty: it is."""
    if "problem" in row:
        return str(row["problem"])
    if "snr" in row and row["snr"] < limit.snr:
        how = " by value" if row.get("fixed") else ""
        ratio = f"signal-to-noise ratio{how} {row['snr']:g} dB"
        return f"{ratio} against {reference} (limit {limit.snr:g})"
    if row.get("agreement", 1.0) < limit.agreement:
        of = f" of {row['decisions']} decisions" if "decisions" in row else " of the values"
        return f"{row['agreement']:.1%}{of} agree with {reference} (limit {limit.agreement:.1%})"
    if limit.max_abs is not None and row.get("max_abs", 0.0) > limit.max_abs:
        off, most = apart(row["max_abs"], limit.max_abs)
        return f"a value is off by {off} (limit {most})"
    return ""


def apart(value: float, limit: float, digits: int = 4) -> tuple[str, str]:
    """Two numbers with as many digits as are needed to distinguish them."""
    for number in range(digits, _DIGITS):
        texts = f"{value:.{number}g}", f"{limit:.{number}g}"
        if texts[0] != texts[1]:
            return texts
    return repr(value), repr(limit)


def _sides(
    name: str,
    found: Sequence[Outputs],
    wanted: Sequence[Outputs],
    counts: Sequence[Outputs],
    kind: str,
) -> list[tuple[Any, Kept]] | Row:
    """The rows of both sides for each sample; or the row of figures that already follows."""
    import numpy as np

    pairs: list[tuple[Any, Kept]] = []
    for at, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        value, kept = ours.get(name), theirs.get(name)
        if not isinstance(kept, Kept):
            if not isinstance(kept, np.ndarray) or kept.dtype.kind not in "fiubOU":
                return {}  # sequences: the rung `shapes` judges them
            shown = counts[at].get(name) if counts else None
            kept = keep(kept, shown, name=name, axis=axis_of(kind))
        if value is None:
            return {"absent": "the output is missing"}
        if np.shape(value) != tuple(kept.shape):
            shape = list(np.shape(value))
            return {"absent": f"its shape is {shape}, the reference's {list(kept.shape)}"}
        pairs.append((kept.of(value), kept))
    if pairs and pairs[0][1].values.dtype.kind != "f":
        same = sum(int((ours == kept.values).sum()) for ours, kept in pairs)
        return {"agreement": round(same / max(sum(ours.size for ours, _ in pairs), 1), 3)}
    return pairs


def _figures(
    pairs: Sequence[tuple[Any, Kept]],
    limit: Limit,
    kind: str,
    boxes: Sequence[tuple[Any, Kept]],
) -> Row:
    import numpy as np

    clean: list[tuple[Any, Any, Any]] = []
    for ours, kept in pairs:
        shown = np.ones(kept.values.shape, bool) if kept.counts is None else kept.counts
        finite = np.isfinite(kept.values)  # the reference itself may mask with infinities
        if not np.array_equal(ours[shown & ~finite], kept.values[shown & ~finite], equal_nan=True):
            return {"problem": "NaN or infinity where the reference is finite, or the reverse"}
        shown = shown & finite
        if not np.isfinite(ours[shown]).all():
            return {"problem": "it holds NaN or infinity"}
        wanted = np.where(shown, kept.values, 0).astype(np.float64)
        clean.append((np.where(shown, ours, 0).astype(np.float64) - wanted, wanted, shown))
    if not sum(int(shown.sum()) for _, _, shown in clean):
        return {"snr": MOST_DB, "overall": MOST_DB, "varies": 0.0, "max_abs": 0.0, "cosine": 1.0}
    size = _rms([(wanted, shown) for _, wanted, shown in clean])
    signal = _signal([kept for _, kept in pairs], [one[1:] for one in clean])
    varies = float(f"{signal / size:.3g}") if size else 0.0
    fixed = varies < limit.floor
    scale = size if fixed else signal
    noises = [_rms([(noise, shown)]) for noise, _, shown in clean]
    row: Row = {
        "snr": _decibels(scale, max(noises)),
        "overall": _decibels(scale, _rms([(noise, shown) for noise, _, shown in clean])),
        "varies": varies,
        "cosine": min(_cosine(noise + wanted, wanted) for noise, wanted, _ in clean),
        "max_abs": float(f"{max(np.abs(noise).max(initial=0.0) for noise, _, _ in clean):.4g}"),
        **({"fixed": True} if fixed else {}),
    }
    tolerance = limit.ratio * (varies if kind == ORDER else 2 * scale)
    return row | agreement(kind, pairs, tolerance, boxes if kind == BOXES else ())


def _signal(kept: Sequence[Kept], values: Sequence[tuple[Any, Any]]) -> float:
    """The deviation of the values from what is common to all samples.

    Common is the mean of every single value, where all samples have one shape; else that of a
    column; else the mean of everything.
    """
    import numpy as np

    if len({one.shape for one in kept}) == 1 and len(kept) > 1:
        everything = np.unique(np.concatenate([one.numbers for one in kept]))
        places = [np.searchsorted(everything, one.numbers) for one in kept]
        found = _deviation(places, values, len(everything))
        if found is not None:
            return found
    if len({one.values.shape[1] for one in kept}) == 1 and kept[0].values.shape[1] > 1:
        lines, shown = (np.concatenate([one[side] for one in values]) for side in (0, 1))
        count = shown.sum(axis=0)
        mean = lines.sum(axis=0) / np.maximum(count, 1)
        if free := np.maximum(count - 1, 0).sum():
            return float(math.sqrt((((lines - mean) * shown) ** 2).sum() / free))
    everything = np.concatenate([one[shown] for one, shown in values])
    return float(everything.std())


def _deviation(
    places: Sequence[Any], values: Sequence[tuple[Any, Any]], height: int
) -> float | None:
    """The pooled deviation from the mean at each place; None: no place has two values."""
    import numpy as np

    width = values[0][0].shape[1]
    total, count = np.zeros((height, width)), np.zeros((height, width))
    for place, (one, shown) in zip(places, values, strict=True):
        total[place] += one
        count[place] += shown
    free = np.maximum(count - 1, 0).sum()
    if not free:
        return None
    mean = total / np.maximum(count, 1)
    square = sum(
        float((((one - mean[place]) * shown) ** 2).sum())
        for place, (one, shown) in zip(places, values, strict=True)
    )
    return float(math.sqrt(square / free))


def _rms(values: Sequence[tuple[Any, Any]]) -> float:
    count = sum(int(shown.sum()) for _, shown in values)
    square = sum(float((one[shown] ** 2).sum()) for one, shown in values)
    return math.sqrt(square / count) if count else 0.0


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return MOST_DB
    if signal == 0:
        return -MOST_DB
    return round(max(-MOST_DB, min(MOST_DB, 20 * math.log10(signal / noise))), 1)


def _cosine(found: Any, wanted: Any) -> float:
    import numpy as np

    lengths = float(np.linalg.norm(found)), float(np.linalg.norm(wanted))
    if not all(lengths):
        return float(lengths[0] == lengths[1])
    product = float((found * wanted).sum())
    return math.floor(min(1.0, product / (lengths[0] * lengths[1])) * 1e6 + 0.01) / 1e6


def _floats(outputs: Outputs) -> dict[str, Sequence[int]]:
    """The shapes of the float outputs."""
    found: dict[str, Sequence[int]] = {}
    for name, one in outputs.items():
        array = one.values if isinstance(one, Kept) else one
        if hasattr(array, "dtype") and array.dtype.kind == "f":
            found[name] = tuple(one.shape)
    return found
