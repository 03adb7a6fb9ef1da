"""Grades recordings: their own claims, the verdicts of their own rules, and the verdicts of ours.

Each of the old rules is kept unchanged, with its weaknesses. They compare the medians of a few
sessions of each build, measured one after another, so they take a baseline that drifts or
alternates between two speeds for a gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import comb, erfc, sqrt
from statistics import fmean, pvariance

from flows.tune.recordings import Recording, Trial
from matrix.trials import Verdict

MIN_GAIN = 5.0
"""Percent of the baseline's latency."""
SIGNIFICANT = 0.05
EXACT = 16
"""Sessions: 12,870 splits at most."""


def median(values: Sequence[float]) -> float:
    """The middle one; of an even number the upper middle, as all the recordings have it."""
    return sorted(values)[len(values) // 2]


def gain(baseline: float, candidate: float) -> float:
    """By how many percent of the baseline's latency the candidate is faster."""
    return (baseline - candidate) / baseline * 100


# The loop for one model on a CPU.

ACCURACY_FLOOR = 0.70


def loop_verdict(gained: float, cv: float) -> str:
    """`cv`: the coefficient of variation of the candidate in percent."""
    threshold = max(1.0, 2 * cv)
    if gained < threshold:
        return "DISCARD"
    return "MARGINAL_KEEP" if gained < 1.5 * threshold else "KEEP"


# The sweep over models on an NPU.


def npu_opset_rule(baseline: Sequence[float], candidate: Sequence[float]) -> str:
    """Whether another opset helps: `true` only if also the slowest session beats the fastest."""
    gained = gain(median(baseline), median(candidate))
    if gained >= MIN_GAIN:
        return "true" if max(candidate) < min(baseline) else "median_only"
    return "false" if gained < -MIN_GAIN else "neutral"


def npu_confirmation(baseline: Sequence[float], candidate: Sequence[float]) -> str:
    """The best of a model, with the sessions of its confirmation."""
    return "CONFIRMED" if max(candidate) < min(baseline) else "MARGINAL_UNCONFIRMED"


def npu_regression(baseline: float, candidate: float) -> bool:
    """Whether a build is at least five times as slow, as fused convolutions can make it."""
    return candidate >= 5 * baseline


# The sweep over models on a GPU.


def gpu_verdict(gained: float) -> str:
    """From the medians alone."""
    if gained >= MIN_GAIN:
        return "KEEP"
    return "MARGINAL" if gained > 0 else "DISCARD"


def gpu_confirmation(baseline: float, sessions: Sequence[float]) -> str:
    """Every session must gain."""
    every = all(gain(baseline, one) >= MIN_GAIN for one in sessions)
    return "KEEP_CONFIRMED" if every else "MARGINAL_UNCONFIRMED"


# Ours.


def grade(
    baseline: Sequence[float], candidate: Sequence[float], noise: float, min_gain: float = MIN_GAIN
) -> tuple[Verdict, str]:
    """Our verdict, with the reason: what medians of sessions can say that were measured one after
    the other.

    `noise`: the largest ratio between two sessions of one build in the same recording. Slower by
    more than that is slower. Nothing is faster: a baseline that was measured earlier differs in
    clock and heat.
    """
    gained = gain(median(baseline), median(candidate))
    if min(candidate) > noise * max(baseline):
        return Verdict.WORSE, "slower by more than the sessions of one build differ"
    if abs(gained) < min_gain:
        return Verdict.NO_DIFFERENCE, f"less than {min_gain:g} %"
    chance = permutation_chance(baseline, candidate)
    if chance > SIGNIFICANT:
        return Verdict.TOO_NOISY, _too_noisy(baseline, candidate, chance)
    if gained < 0:
        return Verdict.WORSE, f"by chance in {chance:.1%} of cases"
    why = "measured after the baseline, not interleaved with it: a drift looks the same"
    return Verdict.TOO_NOISY, why


def _too_noisy(baseline: Sequence[float], candidate: Sequence[float], chance: float) -> str:
    least = 2 / comb(len(baseline) + len(candidate), len(candidate))
    if least > SIGNIFICANT:
        sessions = f"{len(baseline)} against {len(candidate)} sessions"
        return f"{sessions} can never rule out chance ({least:.0%} at best)"
    return f"by chance in {chance:.0%} of cases"


def permutation_chance(one: Sequence[float], other: Sequence[float]) -> float:
    """How often a random split of all sessions differs by as much in rank (two-sided).

    Exact for up to `EXACT` sessions, from the normal distribution beyond.
    """
    together = sorted([*one, *other])
    places: dict[float, list[int]] = {}
    for place, value in enumerate(together):
        places.setdefault(value, []).append(place)
    ranks = [fmean(places[value]) for value in (*one, *other)]
    middle = len(other) * (len(ranks) - 1) / 2
    observed = abs(sum(ranks[len(one) :]) - middle)
    if len(ranks) > EXACT:
        spread = pvariance(ranks) * len(one) * len(other) / (len(ranks) - 1)
        return erfc(observed / sqrt(2 * spread)) if spread else 1.0
    sums = [abs(sum(split) - middle) for split in combinations(ranks, len(other))]
    return sum(value >= observed - 1e-9 for value in sums) / len(sums)


# Both, for each trial of a recording.

ENDED = {
    "BUILD_FAIL": Verdict.BUILD_FAILED,
    "BUILD_TIMEOUT": Verdict.TIMED_OUT,
    "TIMEOUT": Verdict.TIMED_OUT,
    "NO_MODEL_ONNX": Verdict.BUILD_FAILED,
    "NO_ONNX": Verdict.BUILD_FAILED,
    "BENCH_FAIL": Verdict.CRASHED,
    "SCREEN_FAIL": Verdict.CRASHED,
    "CALIB_FAIL_SKIP": Verdict.BUILD_FAILED,
    "NOOP_SKIPPED": Verdict.SAME,
    "PREBUILD_NOOP_SKIP": Verdict.SAME,
    "SKIPPED_GUARD": Verdict.SKIPPED,
    "REGRESSION_SCREEN_ABORT": Verdict.WORSE,
}
"""What the statuses of trials without sessions mean."""
WINS = {"CONFIRMED", "KEEP_CONFIRMED", "KEEP", "true"}


class Agreement(StrEnum):
    """How a recording's own claim stands to its data."""

    SUPPORTED = ""
    OWN_RULE = "the rule of its time does not support the claim"
    OURS = "the sessions do not support the claim"


@dataclass(frozen=True, slots=True)
class Graded:
    """One trial of a recording."""

    recording: str
    model: str
    trial: str
    label: str
    sessions: tuple[float, ...]
    gain: float | None
    claim: str
    """What the recording says."""
    rule: str
    """What the rule of its time says of the sessions."""
    verdict: Verdict
    why: str
    agreement: Agreement


def replay(recording: Recording, min_gain: float = MIN_GAIN) -> list[Graded]:
    """All trials but the baseline."""
    others = (one for one in recording.trials if one.name != recording.baseline)
    return [_graded(recording, one, min_gain) for one in others]


def _graded(recording: Recording, one: Trial, min_gain: float) -> Graded:
    gained, rule = None, ""
    if not one.sessions or not recording.baseline:
        verdict = ENDED.get(one.status, Verdict.SKIPPED)
        why = "the baseline has no sessions" if one.sessions else one.status or "it has no sessions"
    else:
        baseline = recording.trial(recording.baseline).sessions
        gained = gain(median(baseline), median(one.sessions))
        rule = _rule(recording, one, baseline, gained)
        verdict, why = grade(baseline, one.sessions, recording.noise, min_gain)
        if one.accuracy is not None and one.accuracy < ACCURACY_FLOOR:
            verdict = Verdict.INACCURATE
            why = f"accuracy {one.accuracy:g} is below {ACCURACY_FLOOR:g}"
    return Graded(
        recording=recording.file,
        model=recording.model,
        trial=one.name,
        label=one.label,
        sessions=one.sessions,
        gain=gained,
        claim=one.claim,
        rule=rule,
        verdict=verdict,
        why=why,
        agreement=_agreement(one.claim, rule),
    )


def _rule(recording: Recording, one: Trial, baseline: tuple[float, ...], gained: float) -> str:
    if recording.kind == "gpu":
        if one.confirmed:
            return gpu_confirmation(median(baseline), one.sessions)
        return gpu_verdict(gained)
    if recording.kind == "npu":
        if npu_regression(median(baseline), median(one.sessions)):
            return "regression"
        if one.confirmed:
            return npu_confirmation(baseline, one.sessions)
        return npu_opset_rule(baseline, one.sessions)
    return loop_verdict(gained, 0.0)


def _agreement(claim: str, rule: str) -> Agreement:
    """Our verdict never supports a win: the sessions were not interleaved."""
    if claim not in WINS:
        return Agreement.SUPPORTED
    return Agreement.OURS if rule in WINS else Agreement.OWN_RULE
