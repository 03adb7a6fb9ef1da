"""Samples that do not exercise the model fail the rung `samples`, with the reason and the step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.verification.packages import claim
from workers.verify.ladder.observed import Observed
from workers.verify.ladder.samples import judge

FLOAT, INTEGER = {"dtype": "float32"}, {"dtype": "int64"}
VARIES = {"varies": 0.9, "decisions": 7, "ties": 1, "classes": 3}
IDS = {"low": 0.0, "high": 90.0}
PADDED, WHOLE = {"low": 0.0, "high": 1.0}, {"low": 1.0, "high": 1.0}


def judged(
    inputs: dict[str, Any] | None = None,
    seen: dict[str, Any] | None = None,
    output: dict[str, Any] | None = None,
    precision: str = "w8a16",
) -> tuple[bool | None, str]:
    exercised: Any = {"": {"inputs": inputs or {}, "outputs": {"logits": output or VARIES}}}
    found = Observed(exercised=exercised, calibrated={"": seen or {}}, samples=8)
    passed, notes, _evidence = judge(claim(precision), found)
    return passed, "; ".join(notes)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            {"output": {"varies": 1e-6, "fixed": True}},
            "no output varies between the samples by more than 1e-06 of its size",
        ),
        ({"output": {**VARIES, "classes": 1}}, "output logits is one class in all 8 decisions"),
        (
            {
                "inputs": {"pixels": {"low": -0.2, "high": 0.2}},
                "seen": {"pixels": {**FLOAT, "range": (-2.0, 2.0)}},
            },
            "input pixels takes -0.2 to 0.2 in the judged samples, -2 to 2 in calibration",
        ),
        (
            {"inputs": {"pixel_mask": WHOLE}, "seen": {"pixel_mask": {**INTEGER, "range": (0, 1)}}},
            "pixel_mask hides nothing in the judged samples, but something in calibration",
        ),
        (
            {
                "inputs": {"attention_mask": WHOLE, "input_ids": IDS},
                "seen": {"attention_mask": {**INTEGER, "range": (1, 1)}},
            },
            "attention_mask hides nothing in any sample: no text is shorter than the input",
        ),
    ],
    ids=["constant", "one class", "a tenth of the range", "a mask", "a mask everywhere"],
)
def test_samples_that_prove_nothing_fail_with_the_step(case: dict[str, Any], said: str) -> None:
    passed, text = judged(**case)
    assert passed is False
    assert said in text
    assert text.endswith('give the entry inputs as its users have them: dataset = { path = "..." }')


def test_samples_as_users_have_them_pass() -> None:
    whole = {"attention_mask": WHOLE, "input_ids": IDS}
    # Only calibration takes a mask that hides nothing for a constant.
    assert judged(whole, precision="fp32")[0]
    for inputs in ({**whole, "attention_mask": PADDED}, {"attention_mask": WHOLE}):
        assert judged(inputs, {"attention_mask": {**INTEGER, "range": (1, 1)}})[0]
