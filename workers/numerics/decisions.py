"""What the user of a task sees of the outputs, and how much of it agrees with the reference.

    classes   the class (token, start, end) with the largest value of each row
    text      the text of each sample after greedy decoding, without repetitions and blanks
    regions   the mean overlap of the regions of each class
    boxes     the objects that the reference is sure of: class and place
    order     which of two others a sample is more similar to

What the reference itself decides by less than the tolerance is a tie and does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workers.numerics.kept import LAST, Kept

CLASSES, TEXT, REGIONS, BOXES, ORDER = "classes", "text", "regions", "boxes", "order"
KINDS: Mapping[str, str] = {
    "image-classification": CLASSES,
    "text-classification": CLASSES,
    "audio-classification": CLASSES,
    "video-classification": CLASSES,
    "zero-shot-image-classification": CLASSES,
    "multiple-choice": CLASSES,
    "next-sentence-prediction": CLASSES,
    "token-classification": CLASSES,
    "audio-frame-classification": CLASSES,
    "fill-mask": CLASSES,
    "masked-im": CLASSES,
    "question-answering": CLASSES,
    "document-question-answering": CLASSES,
    "visual-question-answering": CLASSES,
    "table-question-answering": CLASSES,
    "text-generation": CLASSES,
    "text2text-generation": CLASSES,
    "image-to-text": CLASSES,
    "image-text-to-text": CLASSES,
    "tabular-classification": CLASSES,
    "automatic-speech-recognition": TEXT,
    "semantic-segmentation": REGIONS,
    "image-segmentation": REGIONS,
    "object-detection": BOXES,
    "zero-shot-object-detection": BOXES,
    "feature-extraction": ORDER,
    "sentence-similarity": ORDER,
    "image-feature-extraction": ORDER,
    "audio-xvector": ORDER,
}
"""How the outputs of a task are decided on; for other tasks only the values are compared."""
_NAMES = ("logits", "start_logits", "end_logits", "logits_per_image", "logits_per_text")
"""The outputs that classes are decided on, where a model has one of them."""
_FEATURES = re.compile("embed|hidden|pooler|present|feature")
"""Outputs that no class is decided on."""
_OVERLAP = 0.5
"""Of two boxes that are the same object."""
_SURE = 0.5


def kind_of(task: str, name: str, shapes: Mapping[str, Sequence[int]]) -> str:
    """How an output is decided on; empty: it is not. `shapes`: of all float outputs, in order."""
    kind, shape = KINDS.get(task.removesuffix("-with-past"), ""), shapes[name]
    if not kind or not shape or shape[LAST] < 2:
        return ""
    if kind == ORDER:
        return kind if len(shape) < 4 else ""
    named = [one for one in shapes if one in _NAMES]
    first = [one for one in shapes if not _FEATURES.search(one)][:1]
    if name not in (named or first):
        return ""
    if kind == REGIONS:
        return kind if len(shape) == 4 and shape[1] > 1 else ""
    cached = any(one.startswith("present") for one in shapes)  # a decoder of tokens
    return CLASSES if kind == TEXT and cached else kind


def axis_of(kind: str) -> int:
    """The axis that classes lie on."""
    return 1 if kind == REGIONS else LAST


def agreement(
    kind: str,
    pairs: Sequence[tuple[Any, Kept]],
    tolerance: float,
    boxes: Sequence[tuple[Any, Kept]] = (),
) -> dict[str, Any]:
    """The share of decisions that agree, of how many, and how many are ties; empty: none counts.

    `pairs`: the rows of each sample that are judged, with those of the reference; `tolerance`: by
    so much two values have to differ; `boxes`: the same for the boxes of objects.
    """
    match kind:
        case "classes":
            found = _classes(pairs, tolerance)
        case "text":
            found = _texts(pairs, tolerance)
        case "regions":
            found = _regions(pairs, tolerance)
        case "boxes":
            found = _objects(pairs, boxes)
        case "order":
            found = _orders(pairs, tolerance)
        case _:
            found = {}
    if "agreement" in found:
        found["agreement"] = round(found["agreement"], 3)
    return found


def _decided(pairs: Sequence[tuple[Any, Kept]], tolerance: float) -> Iterator[tuple[Any, Any, Any]]:
    """The classes of the rows of each sample, those of the reference, and which are no ties."""
    import numpy as np

    for found, kept in pairs:
        if not len(kept.values):
            continue
        values, ours = kept.values, found
        if kept.counts is not None:
            values = np.where(kept.counts, values, -np.inf)
            ours = np.where(kept.counts, ours, -np.inf)
        best = np.sort(np.partition(values, -2, axis=1)[:, -2:], axis=1)
        sure = best[:, 1] - best[:, 0] > tolerance
        yield ours.argmax(axis=1), values.argmax(axis=1), sure


def _classes(pairs: Sequence[tuple[Any, Kept]], tolerance: float) -> dict[str, Any]:
    same = count = ties = 0
    seen: set[int] = set()
    for ours, theirs, sure in _decided(pairs, tolerance):
        seen |= set(theirs.tolist())
        same += int(((ours == theirs) & sure).sum())
        count += int(sure.sum())
        ties += int((~sure).sum())
    if not count + ties:
        return {}
    share = {"agreement": same / count} if count else {}
    return {**share, "decisions": count, "ties": ties, "classes": len(seen)}


def _texts(pairs: Sequence[tuple[Any, Kept]], tolerance: float) -> dict[str, Any]:
    import numpy as np

    lines = []
    for ours, theirs, sure in _decided(pairs, tolerance):
        lines.append((np.where(sure, ours, theirs), theirs))
    if not lines:
        return {}
    numbers, counts = np.unique(np.concatenate([one for _, one in lines]), return_counts=True)
    blank = int(numbers[counts.argmax()])
    wrong = length = 0
    for ours, theirs in lines:
        wanted = _text(theirs, blank)
        wrong += _edits(_text(ours, blank), wanted)
        length += len(wanted)
    share = {"agreement": max(0.0, 1 - wrong / length)} if length else {}
    return {**share, "decisions": length, "ties": 0, "classes": len(numbers)}


def _text(classes: Any, blank: int) -> list[int]:
    """The classes without repetitions and blanks."""
    line = classes.tolist()
    changed = [one for at, one in enumerate(line) if not at or one != line[at - 1]]
    return [one for one in changed if one != blank]


def _edits(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many letters have to be changed, added or left out."""
    row = list(range(len(theirs) + 1))
    for at, mine in enumerate(ours, 1):
        before, row[0] = row[0], at
        for place, yours in enumerate(theirs, 1):
            cost = min(row[place] + 1, row[place - 1] + 1, before + (mine != yours))
            before, row[place] = row[place], cost
    return row[-1]


def _regions(pairs: Sequence[tuple[Any, Kept]], tolerance: float) -> dict[str, Any]:
    import numpy as np

    both: dict[int, int] = {}
    either: dict[int, int] = {}
    count = ties = 0
    for ours, theirs, sure in _decided(pairs, tolerance):
        count, ties = count + int(sure.sum()), ties + int((~sure).sum())
        for one in np.unique(theirs[sure]).tolist():
            mine, yours = (ours == one) & sure, (theirs == one) & sure
            both[one] = both.get(one, 0) + int((mine & yours).sum())
            either[one] = either.get(one, 0) + int((mine | yours).sum())
    if not count + ties:
        return {}
    overlaps = [both[one] / either[one] for one in both]
    share = {"agreement": sum(overlaps) / len(overlaps)} if overlaps else {}
    return {**share, "decisions": count, "ties": ties, "classes": len(both)}


def _objects(
    pairs: Sequence[tuple[Any, Kept]], boxes: Sequence[tuple[Any, Kept]]
) -> dict[str, Any]:
    """The last class means that there is no object."""
    import numpy as np

    same = count = 0
    for at, (found, kept) in enumerate(pairs):
        if not len(kept.values):
            continue
        raised = np.exp(kept.values - kept.values.max(axis=1, keepdims=True))
        best = raised.argmax(axis=1)
        sure = raised.max(axis=1) / raised.sum(axis=1) > _SURE
        sure &= best < kept.values.shape[1] - 1
        right = found.argmax(axis=1) == best
        if boxes and len(boxes[at][1].values) == len(right) and boxes[at][0].shape[1] == 4:
            right &= _overlap(boxes[at][0], boxes[at][1].values) >= _OVERLAP
        same, count = same + int((right & sure).sum()), count + int(sure.sum())
    return {"agreement": same / count, "decisions": count, "ties": 0} if count else {}


def _overlap(ours: Any, theirs: Any) -> Any:
    """Of boxes with a middle, a width and a height: the share of both that they have in common."""
    import numpy as np

    low = np.maximum(ours[:, :2] - ours[:, 2:] / 2, theirs[:, :2] - theirs[:, 2:] / 2)
    high = np.minimum(ours[:, :2] + ours[:, 2:] / 2, theirs[:, :2] + theirs[:, 2:] / 2)
    common = np.clip(high - low, 0, None).prod(axis=1)
    return common / np.maximum(ours[:, 2:].prod(1) + theirs[:, 2:].prod(1) - common, 1e-12)


def _orders(pairs: Sequence[tuple[Any, Kept]], tolerance: float) -> dict[str, Any]:
    import numpy as np

    if len(pairs) < 3 or len({kept.values.shape[1] for _, kept in pairs}) > 1:
        return {}
    if any(not len(kept.values) or kept.counts is not None for _, kept in pairs):
        return {}
    ours = _similar([found.mean(axis=0) for found, _ in pairs])
    theirs = _similar([kept.values.mean(axis=0) for _, kept in pairs])
    count, left, right = len(pairs), *np.triu_indices(len(pairs), 1)
    same = sure = 0
    for at in range(count):
        others = (left != at) & (right != at)
        wanted = theirs[at, left[others]] - theirs[at, right[others]]
        found = ours[at, left[others]] - ours[at, right[others]]
        clear = np.abs(wanted) > tolerance
        sure += int(clear.sum())
        same += int((clear & (wanted * found > 0)).sum())
    ties = count * (count - 1) * (count - 2) // 2 - sure
    return {**({"agreement": same / sure} if sure else {}), "decisions": sure, "ties": ties}


def _similar(vectors: Sequence[Any]) -> Any:
    """The cosine of every vector with every other."""
    import numpy as np

    rows = np.stack(vectors).astype(np.float64)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows @ rows.T
