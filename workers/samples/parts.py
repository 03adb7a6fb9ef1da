"""The three parts of a model's samples, their sizes by rule, and how samples are divided.

Sizes depend on the model alone, never on the clock: equal inputs give equal bytes. The rule is a
parameter of the stage, so that another one makes another key.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FIT, CHOOSE, JUDGE = "fit", "choose", "judge"
PARTS = (FIT, CHOOSE, JUDGE)
"""Calibration, the choice between attempts at quantizing, the verdict."""
ORDER = (JUDGE, CHOOSE, FIT)
"""In which samples are divided."""
_GIB = 1024**3
_RULE = ((6 * _GIB, 16, 4, 8), (2 * _GIB, 32, 4, 8), (0, 64, 8, 16))
"""From so many bytes of float32 weights on: the sizes of the parts."""
_OF_LOOPS = ((_GIB, 16, 4, 8), (0, 32, 4, 8))
"""Of a decoder with a cache: prompts, each of which takes several runs of the model."""
_WITH_PAST = "-with-past"
_MOST_BYTES = {FIT: 512 * 1024**2, CHOOSE: 64 * 1024**2, JUDGE: 128 * 1024**2}
"""A part of large samples has fewer of them, but at least four."""
_LEAST = 4
Sample = Mapping[str, Any]


def rule(task: str, fit: int | None = None) -> list[list[int]]:
    """The rule for the models of a task; `fit`: what the catalog asks for."""
    found = _OF_LOOPS if task.endswith(_WITH_PAST) else _RULE
    return [[size, usual if fit is None else fit, *others] for size, usual, *others in found]


def sizes(given: Sequence[Sequence[int]], model: int) -> dict[str, int]:
    """The size of each part, by a rule, for a model of so many bytes."""
    row = next(one for one in given if model >= one[0])
    return dict(zip(PARTS, row[1:], strict=True))


def most(given: Sequence[Sequence[int]]) -> int:
    """How many samples a rule asks for at most."""
    return sum(given[-1][1:])


def bounded(wanted: Mapping[str, int], size: int) -> dict[str, int]:
    """The sizes for samples of so many bytes."""
    return {
        part: min(count, max(_LEAST, _MOST_BYTES[part] // max(size, 1)))
        for part, count in wanted.items()
    }


def divided(count: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """The sizes for so many samples, in about the same proportions: the verdict needs several."""
    total = sum(wanted.values())
    if count >= total:
        return dict(wanted)
    judge = max(math.ceil(count * wanted[JUDGE] / total), min(4, count // 4), 1)
    choose = max(math.ceil(count * wanted[CHOOSE] / total), min(2, count // 8), 1)
    return {FIT: max(count - choose - judge, 1), CHOOSE: choose, JUDGE: judge}


def cut(samples: Sequence[Any], given: Mapping[str, int]) -> dict[str, list[Any]]:
    """The samples of each part. The verdict takes the first, so that it is given on the same ones
    however many calibrate.

    A graph for which there are fewer than three different samples is judged on what there is.
    """
    found, start = {}, 0
    for part in ORDER:
        found[part] = list(samples[start : start + given[part]]) or [samples[-1]]
        start += given[part]
    return found


def distinct(samples: Iterable[Sample]) -> list[Sample]:
    """The samples without those that equal an earlier one."""
    found: dict[str, Sample] = {}
    for one in samples:
        found.setdefault(digest([one]), one)
    return list(found.values())


def digest(samples: Iterable[Sample]) -> str:
    """SHA-256 over the names, types, shapes and values of samples, in order."""
    import numpy as np

    found = hashlib.sha256()
    for sample in samples:
        for name, value in sorted(sample.items()):
            array = np.ascontiguousarray(value)
            found.update(f"{name} {array.dtype.str} {array.shape}\0".encode())
            found.update(array.tobytes())
        found.update(b"\n")
    return found.hexdigest()
