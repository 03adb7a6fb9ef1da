"""From comparisons to verdicts on the trials of a tuning.

A tuning compares many builds with one baseline, and each comparison is another chance of a false
claim. So the intervals of a tuning are widened until at most 5 % of tunings have any interval that
misses the true value (`level`, Bonferroni's correction by the number of planned trials: it depends
neither on the order nor on the results of the other trials).

A trial that looks better is measured once more in fresh sessions, with the roles swapped: the
baseline is the subject, and the candidate takes the two turns per round that the baseline had
before. The verdict is "better" only if the second measurement agrees. The second measurement also
gives the gain: the first one was selected because it looked good, so it is too high on average.
"""

from __future__ import annotations

from dataclasses import dataclass

from matrix.trials import Verdict
from workers.measure import verdict as measured
from workers.measure.verdict import LEVEL, Judgement

REGRESSION = 1.5
"""A trial that a short screening finds this many times as slow is not measured further."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What may be said of a trial; gains are percent of the baseline's time."""

    verdict: Verdict
    why: str
    gain: float
    low: float
    high: float
    floor: float
    """The noise floor in percent: a difference up to this may be chance."""


def level(trials: int) -> float:
    """How often one of so many intervals may miss the truth."""
    return LEVEL / max(1, trials)


def decide(judgement: Judgement, min_gain: float) -> Decision:
    """The verdict on a trial (the subject) against the baseline (the other one)."""
    return _decided(judgement, _percent(judgement.ratio), min_gain)


def confirm(judgement: Judgement, min_gain: float) -> Decision:
    """The verdict on a candidate (the other one) that the baseline (the subject) is compared with.

    `BETTER` is confirmed; anything else takes the first verdict back.
    """
    return _decided(swapped(judgement), _percent(1 / judgement.ratio), min_gain)


def after_confirmation(told: Decision) -> tuple[Verdict, str]:
    """The verdict on a trial that looked better, by its confirmation, with the reason."""
    if told.verdict is Verdict.BETTER:
        return told.verdict, told.why
    verdict = Verdict.TOO_NOISY if told.verdict is Verdict.WORSE else told.verdict
    return verdict, f"not confirmed in fresh sessions: {told.why}"


def swapped(judgement: Judgement) -> Judgement:
    """The same measurement, seen from the other subject."""
    kinds = measured.Verdict
    turned = {kinds.FASTER: kinds.SLOWER, kinds.SLOWER: kinds.FASTER}
    return Judgement(
        verdict=turned.get(judgement.verdict, judgement.verdict),
        why=judgement.why,
        ratio=1 / judgement.ratio,
        low=1 / judgement.high,
        high=1 / judgement.low,
        floor=judgement.floor,
        by_session=tuple(1 / one for one in judgement.by_session),
        null_by_session=judgement.null_by_session,
    )


def _decided(judgement: Judgement, gain: float, min_gain: float) -> Decision:
    verdict, why = _said(judgement, gain, min_gain)
    return Decision(
        verdict=verdict,
        why=why,
        gain=gain,
        low=_percent(judgement.high),
        high=_percent(judgement.low),
        floor=judgement.floor * 100,
    )


def _said(judgement: Judgement, gain: float, min_gain: float) -> tuple[Verdict, str]:
    kinds = measured.Verdict
    if judgement.verdict is kinds.NOISY:
        return Verdict.TOO_NOISY, judgement.why
    if judgement.verdict is kinds.SAME:
        return Verdict.NO_DIFFERENCE, judgement.why
    if abs(gain) < min_gain:
        word = "faster" if gain > 0 else "slower"
        return Verdict.NO_DIFFERENCE, f"{abs(gain):.1f} % {word}, which is less than {min_gain:g} %"
    faster = judgement.verdict is kinds.FASTER
    return Verdict.BETTER if faster else Verdict.WORSE, judgement.why


def _percent(ratio: float) -> float:
    """By how many percent of the baseline's time a build is faster."""
    return (1 - ratio) * 100
