"""Recorded sessions by the rules of their time, with which `tests.bench.tune` compares ours."""

from __future__ import annotations

import pytest

from tests.tunings import rules
from tests.tunings.rules import gain, median

NPU = {
    # model: sessions with opset 17, with opset 21, gain, the rule's answer, what was published
    "resnet-18": ((0.990, 4.003, 2.716), (1.054, 2.175, 4.107), 19.92, "median_only", "confirmed"),
    "mobilevit-small": (
        (10.557, 11.721, 27.436), (10.814, 8.625, 8.449), 26.41, "median_only", "confirmed"),
    "dinov2-small": (
        (7.176, 6.392, 9.436), (4.977, 4.876, 6.884), 30.64, "median_only", "confirmed"),
    "dinov2-base": ((34.556, 34.668, 33.148), (33.001, 26.224, 26.227), 24.10, "true", "confirmed"),
    "vit-base": ((9.330, 12.723, 9.064), (15.271, 10.019, 7.808), -7.38, "false", "false"),
    "roberta": ((14.645, 14.873, 14.716), (16.685, 14.743, 14.919), -1.38, "neutral", "neutral"),
    "MiniLM": ((5.814, 5.880, 5.912), (6.000, 5.851, 5.844), 0.49, "neutral", "neutral"),
    "distilbert": ((19.498, 19.417, 19.519), (19.591, 19.447, 19.505), -0.04, "neutral", "neutral"),
    "dino-vitb16": (
        (19.924, 19.975, 19.897), (20.197, 20.071, 19.988), -0.74, "neutral", "neutral"),
}  # fmt: skip


@pytest.mark.parametrize("model", NPU)
def test_opset_sessions_by_the_rule_of_their_time(model: str) -> None:
    before, after, gained, rule, _ = NPU[model]
    assert gain(median(before), median(after)) == pytest.approx(gained, abs=0.005)
    assert rules.npu_opset_rule(before, after) == rule


def test_published_claims_that_the_rule_itself_does_not_support() -> None:
    wrong = [
        model
        for model, (before, after, _, _, published) in NPU.items()
        if published == "confirmed" and rules.npu_opset_rule(before, after) != "true"
    ]
    assert wrong == ["resnet-18", "mobilevit-small", "dinov2-small"]


def test_fused_convolutions() -> None:
    baseline, fused = (1.311, 0.952, 0.964), (132.3, 134.97, 130.669)
    assert rules.npu_regression(median(baseline), median(fused))
    assert median(fused) / median(baseline) == pytest.approx(137, abs=0.5)
    assert not rules.npu_regression(1.0, 4.99)


def test_the_confirmation_on_an_npu_needs_ranges_that_are_apart() -> None:
    assert rules.npu_confirmation((2.0, 3.0), (1.0, 1.9)) == "CONFIRMED"
    assert rules.npu_confirmation((2.0, 3.0), (1.0, 2.0)) == "MARGINAL_UNCONFIRMED"


@pytest.mark.parametrize(
    ("baseline", "sessions", "verdict"),
    [
        (26.372, (22.323, 21.709, 21.977, 21.667, 23.431), "KEEP_CONFIRMED"),
        (26.372, (23.589, 23.385, 25.548, 22.777, 23.185), "MARGINAL_UNCONFIRMED"),
        (6.823, (6.437, 6.251, 6.224, 8.718, 6.869), "MARGINAL_UNCONFIRMED"),
        (73.15, (60.6, 64.1, 119.5, 239.2, 279.3), "MARGINAL_UNCONFIRMED"),
    ],
)
def test_the_confirmation_on_a_gpu(
    baseline: float, sessions: tuple[float, ...], verdict: str
) -> None:
    assert rules.gpu_confirmation(baseline, sessions) == verdict


def test_the_gain_over_all_sessions() -> None:
    sessions = (22.323, 21.709, 21.977, 21.667, 23.431)
    assert gain(26.372, median(sessions)) == pytest.approx(16.67, abs=0.005)
    assert gain(73.15, median((60.6, 64.1, 119.5, 239.2, 279.3))) == pytest.approx(-63.36, abs=0.01)


@pytest.mark.parametrize(("gained", "verdict"), [(5, "KEEP"), (4.99, "MARGINAL"), (0, "DISCARD")])
def test_a_gpu_verdict_without_confirmation(gained: float, verdict: str) -> None:
    assert rules.gpu_verdict(gained) == verdict


@pytest.mark.parametrize(
    ("gained", "cv", "verdict"),
    [
        (0.99, 0, "DISCARD"), (1.0, 0, "MARGINAL_KEEP"), (1.49, 0, "MARGINAL_KEEP"),
        (1.5, 0, "KEEP"), (9.9, 5, "DISCARD"), (10, 5, "MARGINAL_KEEP"), (15, 5, "KEEP"),
    ],
)  # fmt: skip
def test_the_loop_keeps_from_its_boundaries_on(gained: float, cv: float, verdict: str) -> None:
    assert rules.loop_verdict(gained, cv) == verdict


def test_two_states_of_a_baseline_are_a_gain_by_the_old_rule() -> None:
    """The published win of 90 % compared with a baseline of two speeds."""
    before = (237.0, 21.0, 236.0, 20.5, 235.0)
    after = (20.4, 20.6, 21.1, 20.2, 20.9)
    assert rules.gpu_confirmation(median(before), after) == "KEEP_CONFIRMED"
