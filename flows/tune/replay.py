"""Grades recordings: what they claim, what the rules of their time say, and what ours say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flows.tune import policies
from flows.tune.policies import gain, grade, median
from flows.tune.recorded import Recording, Trial
from matrix.trials import Verdict

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


def replay(recording: Recording, min_gain: float = policies.MIN_GAIN) -> list[Graded]:
    """All trials but the baseline."""
    others = (one for one in recording.trials if one.name != recording.baseline)
    return [_graded(recording, one, min_gain) for one in others]


def _graded(recording: Recording, one: Trial, min_gain: float) -> Graded:
    if not one.sessions or not recording.baseline:
        verdict = ENDED.get(one.status, Verdict.SKIPPED)
        why = "the baseline has no sessions" if one.sessions else one.status or "it has no sessions"
        return _row(recording, one, None, "", verdict, why)
    baseline = recording.trial(recording.baseline).sessions
    ours = grade(baseline, one.sessions, recording.noise, min_gain)
    rule = _rule(recording, one, baseline)
    if one.accuracy is not None and one.accuracy < policies.ACCURACY_FLOOR:
        why = f"accuracy {one.accuracy:g} is below {policies.ACCURACY_FLOOR:g}"
        return _row(recording, one, ours.gain, rule, Verdict.INACCURATE, why)
    return _row(recording, one, ours.gain, rule, ours.verdict, ours.why)


def _rule(recording: Recording, one: Trial, baseline: tuple[float, ...]) -> str:
    gained = gain(median(baseline), median(one.sessions))
    if recording.kind == "gpu":
        if one.confirmed:
            return policies.gpu_confirmation(median(baseline), one.sessions)
        return policies.gpu_verdict(gained)
    if recording.kind == "npu":
        if policies.npu_regression(median(baseline), median(one.sessions)):
            return "regression"
        if one.confirmed:
            return policies.npu_confirmation(baseline, one.sessions)
        return policies.npu_opset_rule(baseline, one.sessions)
    return policies.loop_verdict(gained, 0.0)


def _row(
    recording: Recording, one: Trial, gained: float | None, rule: str, verdict: Verdict, why: str
) -> Graded:
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


def _agreement(claim: str, rule: str) -> Agreement:
    """Our verdict never supports a win: the sessions were not interleaved."""
    if claim not in WINS:
        return Agreement.SUPPORTED
    return Agreement.OURS if rule in WINS else Agreement.OWN_RULE
