"""What is judged of the tokens that a decoder generates."""

from __future__ import annotations

import math
from typing import Any

import pytest

from matrix.verification import EXPORT, Limit
from tests.verification.packages import claim
from workers.runtimes.runtime import OPENVINO, Runtime
from workers.session import CPU
from workers.verify.ladder.observed import Observed, RuntimeRun
from workers.verify.ladder.parity import judge_outputs

CPU_NAME = f"{CPU} cpu"
WANTED = [4, 8, 15]
NEAR: Any = {"logits": {"snr": 22.0, "agreement": 1.0, "decisions": 2, "ties": 1}}
SAME: Any = {"logits": {"snr": 150.0, "agreement": 1.0, "decisions": 3, "ties": 0}}


def run(provider: str = CPU, **generated: Any) -> RuntimeRun:
    said = {"tokens": WANTED, "wanted": WANTED, "parity": SAME}
    export = {"tokens": WANTED, "wanted": WANTED}
    found = RuntimeRun(Runtime("onnxruntime", provider, "cpu", "1"), True)
    found.models["m"] = {"at": "", "parity": SAME}
    found.generated = {**said, "export": export, **generated}
    return found


def judged(one: RuntimeRun, precision: str = "fp32") -> tuple[bool | None, str]:
    passed, notes, _evidence = judge_outputs(claim(precision), Observed(runs=[one]))
    return passed, "; ".join(notes)


def test_pytorchs_tokens_pass_and_are_counted() -> None:
    passed, said = judged(run())
    assert passed
    assert "3 of 3 generated tokens are PyTorch's" in said


def test_another_token_fails_an_exact_precision_alone() -> None:
    other = run(tokens=[4, 9, 15])
    passed, said = judged(other)
    assert passed is False
    assert f"token 2 that {other.runtime.name} generates is 9, PyTorch's is 8" in said
    passed, said = judged(run(tokens=[4, 9, 15], parity=NEAR), "w8a16")
    assert passed
    assert "2 of 3 generated tokens are PyTorch's" in said


@pytest.mark.parametrize("who", ["the export", "CPUExecutionProvider cpu"])
def test_a_token_that_is_as_likely_is_no_other_text(who: str) -> None:
    other: Any = {"tokens": [4, 9, 15], "wanted": WANTED}
    limit = EXPORT if who == "the export" else Limit.usual("fp32")

    def said_of(behind: float) -> tuple[bool | None, str]:
        found = {**other, "behind": [0.0, behind, 0.0]}
        return judged(run(export=found) if who == "the export" else run(**found))

    for near in (0.0, 1.9 * limit.ratio):
        passed, said = said_of(near)
        assert passed, said
        assert ("2 of 3 generated tokens are PyTorch's, 1 as likely" in said) == (who in CPU_NAME)
    for far in (2.1 * limit.ratio, 1.0, math.nan):
        passed, said = said_of(far)
        assert passed is False
        assert f"token 2 that {who} generates is 9, PyTorch's is 8" in said


def test_devices_may_compute_in_another_order() -> None:
    assert judged(run(OPENVINO, tokens=[4, 9, 15]))[0]


@pytest.mark.parametrize("precision", ["fp32", "w8a16"])
def test_logits_that_are_far_from_the_exports_fail(precision: str) -> None:
    far = {"logits": {"snr": 3.0}}
    passed, said = judged(run(parity=far), precision)
    assert passed is False
    assert "generated logits on CPUExecutionProvider cpu: signal-to-noise ratio 3 dB" in said


@pytest.mark.parametrize("precision", ["fp32", "w8a16"])
def test_an_export_that_generates_something_else_fails(precision: str) -> None:
    passed, said = judged(run(export={"tokens": [4, 8, 16], "wanted": WANTED}), precision)
    assert passed is False
    assert "token 3 that the export generates is 16, PyTorch's is 15" in said


def test_what_cannot_generate_fails() -> None:
    for broken in (
        run(error="decode has no mask", tokens=[], wanted=[]),
        run(export={"error": "decode has no mask"}),
    ):
        passed, said = judged(broken, "w8a16")
        assert passed is False
        assert "cannot generate: decode has no mask" in said


def test_the_tokens_are_evidence() -> None:
    _passed, _notes, evidence = judge_outputs(claim(), Observed(runs=[run()]))
    assert evidence["generation"] == {
        "pytorch": WANTED,
        "CPUExecutionProvider cpu": {"tokens": WANTED, "same": 3},
    }
