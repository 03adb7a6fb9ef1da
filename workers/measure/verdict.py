"""Whether one model is faster than another, as far as the data say it.

The data are rounds. In each round the subject, the other model and the other model once more (the
null run) have a turn, in random order; a turn counts as the median of its runs, and only ratios
within a round are used, so whatever changes more slowly than a round cancels out.

Rounds of one session share what a process decides once: where its memory lies, which cores its
threads prefer. A difference is therefore measured once per session, and the sessions are the
sample. There are few of them. The difference between two sessions of the same model says as much
about the noise as the subject's own sessions do, so the variance is estimated from both.

The interval is the wider one of two: a bootstrap of the rounds, and Student's interval of the
sessions. The noise floor is the largest difference between two sessions of the same model, or half
of the interval if that is more. A difference is claimed if

- it exceeds the noise floor, and the interval of the ratio excludes 1,
- every session shows it in the same direction, and at least a third of it,
- it is 1 % or more.

Otherwise the verdict is `no difference` only if a relevant difference would have been detected: if
the noise floor is at most 5 %, or the limit that the caller gives. Above that, the data are too
noisy to decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LEAST = 0.01
"""A smaller difference does not count."""
PRECISE = 0.05
"""Where a difference of this size would not be seen, the data are too noisy; unless the caller says
what size matters."""
SHARE = 1 / 3
"""Of the whole difference, what every session has to show."""
RESAMPLES = 1000
TRIMMED = 0.2
"""Of the rounds of a session, the share left out at either end."""
LEVEL = 0.05
"""How often an interval may miss the truth."""


class Verdict(StrEnum):
    """What may be said of the subject."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference"
    NOISY = "too noisy to say"


@dataclass(frozen=True, slots=True)
class Round:
    """The medians of the turns of a round, in any one unit."""

    this: float
    other: float
    null: float
    """The other model a second time."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict with its numbers; ratios are the subject's time over the other's."""

    verdict: Verdict
    why: str
    ratio: float
    low: float
    high: float
    """The interval of the ratio, at 95 % unless another level was asked for."""
    floor: float
    """The noise floor: a difference up to this share may be chance."""
    by_session: tuple[float, ...]
    """The ratio in each session."""
    null_by_session: tuple[float, ...]
    """The ratio of the two sessions of the same model."""


@dataclass(frozen=True, slots=True)
class _Estimate:
    """Logarithms of ratios."""

    effects: Any
    nulls: Any
    low: float
    high: float

    @property
    def effect(self) -> float:
        return float(self.effects.mean())

    @property
    def floor(self) -> float:
        return max(float(abs(self.nulls).max()), (self.high - self.low) / 2)


def judge(
    sessions: Sequence[Sequence[Round]], seed: int, level: float = LEVEL, matters: float = PRECISE
) -> Judgement:
    """The verdict on all rounds of all sessions; `seed`: of the bootstrap.

    `level`: how often the interval may miss the truth. Who compares many models at once asks for
    less, because each comparison is another chance of a false claim. `matters`: the share from
    which on a difference must not be missed.
    """
    found = _estimate(sessions, seed, level)
    verdict, why = _decide(found, len(sessions), matters)
    return Judgement(
        verdict=verdict,
        why=why,
        ratio=math.exp(found.effect),
        low=math.exp(found.low),
        high=math.exp(found.high),
        floor=math.expm1(found.floor),
        by_session=tuple(math.exp(one) for one in found.effects),
        null_by_session=tuple(math.exp(one) for one in found.nulls),
    )


def _estimate(sessions: Sequence[Sequence[Round]], seed: int, level: float) -> _Estimate:
    import numpy as np

    random = np.random.default_rng(seed)
    effects, nulls, resampled = [], [], []
    for rounds in sessions:
        logs = np.log([(one.this, one.other, one.null) for one in rounds])
        differences = logs[:, 0] - (logs[:, 1] + logs[:, 2]) / 2
        effects.append(_trimmed(differences))
        nulls.append(_trimmed(logs[:, 2] - logs[:, 1]))
        picks = random.integers(0, len(rounds), (RESAMPLES, len(rounds)))
        resampled.append(_trimmed(differences[picks]))
    means = np.mean(resampled, axis=0)
    low, high = np.quantile(means, (level / 2, 1 - level / 2))
    effect, half = np.mean(effects), _half(np.array(effects), np.array(nulls), level)
    return _Estimate(
        np.array(effects), np.array(nulls), float(min(low, effect - half)),
        float(max(high, effect + half)),
    )  # fmt: skip


def _half(effects: Any, nulls: Any, level: float) -> float:
    """Half of Student's interval of the mean effect.

    With the variance s of one session of one model, an effect has 3/2 s (its other side is the
    mean of two sessions) and a null 2 s, around a mean that is known to be zero.
    """
    count = len(effects)
    squares = ((effects - effects.mean()) ** 2).sum() / 1.5 + (nulls**2).sum() / 2
    freedom = 2 * count - 1
    return student(freedom, level) * math.sqrt(1.5 * float(squares) / freedom / count)


def student(freedom: int, level: float) -> float:
    """What a value of Student's distribution exceeds, in size, in that share of cases."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < 1 - level:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 1 - level else (low, middle)
    return high


def _within(value: float, freedom: int) -> float:
    """How often a value is below this in size: the series for whole degrees of freedom."""
    angle = math.atan(value / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(2 + odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power - 1) / power
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def _trimmed(values: Any) -> Any:
    """The mean of the middle values, along the last axis."""
    import numpy as np

    count = values.shape[-1]
    cut = int(TRIMMED * count)
    return np.sort(values, axis=-1)[..., cut : count - cut].mean(axis=-1)


def _decide(found: _Estimate, sessions: int, matters: float) -> tuple[Verdict, str]:
    if sessions < 2:
        return Verdict.NOISY, "a single session cannot tell a difference from chance"
    floor = _share(found.floor)
    doubt = _doubt(found)
    if not doubt:
        verdict = Verdict.SLOWER if found.effect > 0 else Verdict.FASTER
        return verdict, f"all {sessions} sessions agree, and the noise floor is {floor}"
    if math.expm1(found.floor) > matters:
        return Verdict.NOISY, f"{doubt}, and the noise floor is {floor}"
    return Verdict.SAME, f"{doubt}, and more than {floor} would have been seen"


def _doubt(found: _Estimate) -> str:
    """Why a difference cannot be claimed; empty: it can."""
    size = abs(found.effect)
    if size < LEAST:
        return f"the difference is below {LEAST:.0%}"
    if size <= found.floor or found.low <= 0 <= found.high:
        return "the difference is within the noise"
    if (found.effects * math.copysign(1.0, found.effect)).min() < SHARE * size:
        return "the sessions do not agree on the difference"
    return ""


def _share(logarithm: float) -> str:
    return f"{math.expm1(logarithm):.1%}"
