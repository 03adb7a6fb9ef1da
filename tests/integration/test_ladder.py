"""Every rung fails of what it is for, and no other: sound models, damaged one way at a time.

A rung that cannot be judged because of that damage says so and has not failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix.verification import rules_from
from tests.verification.packages import (
    MLAS,
    NPU,
    VITIS,
    WEIGHTS,
    VerificationHarness,
    claim,
    failed,
    lab_in,
    model,
    not_run,
    qdq,
    shift,
    then,
    told,
    warm,
)
from workers.build.claim import Claim
from workers.runtimes.pool import Runtimes
from workers.verify.ladder.levels import Demand

pytestmark = pytest.mark.engine

HIGHER = ["loads", "shapes", "samples", "parity"]
RUN = ["shapes", "parity"]
DOUBLE = 11


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtimes]:
    with warm(tmp_path_factory.mktemp("warm")) as found:
        yield found


@pytest.fixture
def harness(tmp_path: Path, runtimes: Runtimes) -> Iterator[VerificationHarness]:
    with lab_in(tmp_path, runtimes) as found:
        yield found


@pytest.mark.parametrize(
    ("make", "precision", "target"),
    [
        (model, "fp32", MLAS),
        (lambda: model(WEIGHTS.astype(np.float16)), "fp16", MLAS),
        (qdq, "w8a16", NPU),
        (lambda: qdq(128, 2**-4, np.uint8), "w8a8", NPU),
    ],
)
def test_sound_models_of_every_precision_pass(
    harness: VerificationHarness, make: Callable[[], Any], precision: str, target: Any
) -> None:
    climbed = harness.climb(make(), claim(precision, target))
    assert not climbed.failed, [rung.detail for rung in climbed.failed]
    assert [rung.passed for rung in climbed.rungs] == [True] * 6


def holding(value: float, kind: Any = np.float32) -> Any:
    weights = WEIGHTS.astype(kind)
    weights[3, 3] = value
    return weights


@pytest.mark.parametrize(
    ("make", "held", "text", "act", "unseen"),
    [
        (lambda: model(holding(np.nan)), claim(), "weight w holds NaN", "source damaged", HIGHER),
        (lambda: model(holding(np.inf, np.float16)), claim("fp16"), "weight w holds an infinity",
         "did fp16 overflow?", HIGHER),
        (lambda: model(op="Frobnicate"), claim(), "No Op registered for Frobnicate",
         "try another opset", ["policy", *HIGHER]),
        (lambda: model(opset=12), claim(), "opset 12 is outside 13..21, which mlas_cpu takes",
         "set opset in the catalog", []),
        (lambda: model(ir=10), claim(target=replace(MLAS, opset=(13, 17))),
         "IR version 10 is newer than 8", "set a lower opset", []),
    ],
)  # fmt: skip
def test_integrity_alone(
    harness: VerificationHarness,
    make: Callable[[], Any],
    held: Claim,
    text: str,
    act: str,
    unseen: list[str],
) -> None:
    only(harness.climb(make(), held), "integrity", text, act, unseen)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: data.write_bytes(b"half"), "model.onnx.data has 4 bytes instead of 256"),
        (lambda data: data.write_bytes(b"half"), "external data of w are cut off: model.onnx.data"),
        (lambda data: data.unlink(), "model.onnx.data is missing"),
        (lambda data: data.unlink(), "external data of w are missing: model.onnx.data"),
    ],
)
def test_external_data_that_are_not_all_there_fail_integrity_alone(
    harness: VerificationHarness, damage: Callable[[Path], None], text: str
) -> None:
    folder = harness.place(model(), external=True)
    subject = harness.subject(folder, claim())
    damage(folder / "model.onnx.data")
    climbed = harness.verifier.climb(subject)
    only(climbed, "integrity", text, "fetch it or build it again", ["policy", *HIGHER])


@pytest.mark.parametrize(
    ("make", "held", "text"),
    [
        (model, claim("w8a16", NPU), "labelled w8a16, but has no QuantizeLinear"),
        (model, claim("fp16"), "labelled fp16, but 256 of 256 weight bytes are float32"),
        (lambda: model(WEIGHTS.astype(np.float16)), claim("fp32", rules=rules_from(
            {"parity": {"fp32": {"snr": 5.0, "reason": "halves"}}})),
         "labelled fp32, but 128 weight bytes are float16"),
        (lambda: model(WEIGHTS.astype(np.float16)), claim("w8"), "but no weight is int8"),
        (lambda: qdq(128, 2**-4, np.uint8), claim("w8a16", NPU), "its activations are 1 uint8"),
        (qdq, claim("w8a8", NPU), "labelled w8a8, but its activations are 1 uint16"),
        (qdq, claim("w8"), "labelled w8 (only weights), but its activations are quantized too"),
        (lambda: model(WEIGHTS.astype(np.float16)), claim("w4"), "but no weight has 4 bits"),
        (qdq, claim("w4"), "labelled w4 (only weights), but its activations are quantized too"),
        (qdq, claim("fp32", rules=rules_from(
            {"parity": {"fp32": {"snr": 5.0, "reason": "coarse"}}})),
         "labelled fp32, but contains 2 quantized tensors"),
        (qdq, claim("w8a16", VITIS), "has QDQ nodes, which vitisai_npu must not get"),
        (qdq, claim("w8a16", replace(NPU, qdq=False, why="it hangs")), "must not get: it hangs"),
        (qdq, claim("w8a16", NPU, blocked_ops=("MatMul",)),
         "MatMul is blocked for qnn_npu, but was quantized"),
        (lambda: then("Identity"), claim(blocked_ops=("Identity",)),
         "Identity is blocked for mlas_cpu, but was added by the build"),
    ],
)  # fmt: skip
def test_policy_alone(
    harness: VerificationHarness, make: Callable[[], Any], held: Claim, text: str
) -> None:
    only(harness.climb(make(), held), "policy", text, "show what the build did", [])


def test_a_pass_that_was_not_left_out_fails_policy_alone(harness: VerificationHarness) -> None:
    stage = {"stage": "optimize", "params": {"blocked_passes": ["GeluFusion"]}}
    held = claim(blocked_passes=("GeluFusion", "LayerNormFusion"))
    subject = harness.subject(harness.place(model()), held, manifest={"stages": [stage]})
    climbed = harness.verifier.climb(subject)
    only(climbed, "policy", "the pass LayerNormFusion is blocked", "the build did not", [])


def test_an_operator_that_no_runtime_has_fails_loads_alone(harness: VerificationHarness) -> None:
    climbed = harness.climb(model(op="Unknown", domain="nobody.knows"), claim())
    only(climbed, "loads", "nobody.knows", "`modelmill doctor` shows the runtime's version", RUN)
    assert told(climbed, "shapes") == "not run: because loads failed"


@pytest.mark.parametrize(
    ("make", "text", "unseen"),
    [
        (lambda: model(output="z"), "the outputs are z; the export's are y", ["parity"]),
        (lambda: model(given="z"), "the inputs are z; the export's are x", ["loads", "parity"]),
        (lambda: then("Cast", kind=DOUBLE, to=DOUBLE), "y is float64, in the export float32", []),
        (lambda: then("Reshape", "wide", dims=(1, 2, 8)),
         "y is float32 [1, 2, 8] when run, float32 [2, 8] in the export", ["parity"]),
    ],
)  # fmt: skip
def test_shapes_alone(
    harness: VerificationHarness, make: Callable[[], Any], text: str, unseen: list[str]
) -> None:
    only(harness.climb(make(), claim()), "shapes", text, "waive shapes with a reason", unseen)


@pytest.mark.parametrize(
    ("make", "held", "text"),
    [
        (lambda: model(WEIGHTS[::-1].copy()), claim(), "model.onnx y on CPUExecutionProvider"),
        (lambda: model(WEIGHTS * 2), claim(), "signal-to-noise ratio -2.6 dB against the export"),
        (lambda: then("Log"), claim(), "it holds NaN or infinity"),
        (lambda: shift(qdq(), "scale", np.float32(2**-11)), claim("w8a16", NPU), "ratio -2.6 dB"),
        (lambda: shift(qdq(), "zero2", np.uint16(1 << 14)), claim("w8a16", NPU), "signal-to-noise"),
    ],
)  # fmt: skip
def test_parity_alone(
    harness: VerificationHarness, make: Callable[[], Any], held: Claim, text: str
) -> None:
    only(harness.climb(make(), held), "parity", text, "(verify.parity) in the catalog", [])


def only(climbed: Any, rung: str, text: str, act: str, unseen: list[str]) -> None:
    """Exactly one rung has failed; what could not be judged because of that says so."""
    shown = [(one.name, one.passed, one.detail) for one in climbed.rungs]
    assert failed(climbed) == [rung], shown
    assert text in told(climbed, rung), shown
    assert act in told(climbed, rung), shown
    assert not_run(climbed) == unseen, shown
    assert [one.name for one in climbed.failed if one.passed is False] == [rung]
    assert Demand.parse("parity").lacks(climbed.to_json())


def test_outputs_that_are_no_numbers_show_without_an_export_too(
    harness: VerificationHarness,
) -> None:
    subject = replace(harness.subject(harness.place(then("Log")), claim()), export=None)
    climbed = harness.verifier.climb(subject)
    assert failed(climbed) == ["loads"]
    assert "output y holds NaN or infinity" in told(climbed, "loads")


def test_a_mask_of_infinities_is_no_broken_weight(harness: VerificationHarness) -> None:
    from onnx import numpy_helper

    mask = np.where(np.eye(8), 0, -np.inf).astype(np.float32)
    one = model()
    one.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
    assert not harness.climb(one, claim()).failed
    broken = model()
    broken.graph.initializer.append(numpy_helper.from_array(mask + 3, "mask"))
    assert "weight mask holds an infinity" in told(harness.climb(broken, claim()), "integrity")


def test_a_waiver_lets_a_rung_fail_and_shows(harness: VerificationHarness) -> None:
    rules = rules_from({"waive": {"parity": "two outputs nobody reads"}})
    climbed = harness.climb(model(WEIGHTS * 2), claim(rules=rules))
    assert not climbed.failed
    record = climbed.to_json()
    assert record["verification"][5]["waived"] == "two outputs nobody reads"
    assert "waived: two outputs" in record["verification"][5]["detail"]
    assert Demand.parse("parity").lacks(record) == ""


def test_what_is_waived_below_does_not_keep_the_rest_from_being_run(
    harness: VerificationHarness,
) -> None:
    rules = rules_from({"waive": {"integrity": "the source has it too"}})
    climbed = harness.climb(model(holding(np.nan)), claim(rules=rules))
    assert failed(climbed) == ["integrity", "parity"]
    assert [one.name for one in climbed.failed] == ["parity"]
    renamed = rules_from({"waive": dict.fromkeys(("shapes", "parity"), "a new name")})
    climbed = harness.climb(model(output="z"), claim(rules=renamed))
    assert not climbed.failed
    assert told(climbed, "parity").endswith("the output is missing (waived: a new name)")


def test_a_threshold_of_the_catalog_is_the_limit_and_its_reason_shows(
    harness: VerificationHarness,
) -> None:
    noise = np.random.default_rng(6).standard_normal((8, 8)).astype(np.float32)
    noisy = model(WEIGHTS + np.float32(0.05) * noise)
    assert failed(harness.climb(noisy, claim())) == ["parity"]
    loose = {"parity": {"fp32": {"snr": 15.0, "agreement": 0.5, "reason": "noise on purpose"}}}
    climbed = harness.climb(noisy, claim(rules=rules_from(loose)))
    assert not climbed.failed
    assert climbed.rungs[5].evidence["limits"]["reason"] == "noise on purpose"
    assert "the catalog asks 15 dB: noise on purpose" in told(climbed, "parity")
    strict = {"parity": {"fp32": {"snr": 15.0, "max_abs": 1e-6, "reason": "used as an index"}}}
    climbed = harness.climb(noisy, claim(rules=rules_from(strict)))
    assert failed(climbed) == ["parity"]
    assert "a value is off by" in told(climbed, "parity")


def test_without_an_export_parity_cannot_be_told(harness: VerificationHarness) -> None:
    subject = replace(harness.subject(harness.place(model()), claim()), export=None)
    climbed = harness.verifier.climb(subject)
    assert [rung.passed for rung in climbed.rungs] == [True, True, True, None, None, None]
    assert (
        [rung.name for rung in climbed.failed]
        == not_run(climbed)
        == ["shapes", "samples", "parity"]
    )
    assert "--export" in told(climbed, "parity")


def test_an_export_that_does_not_run_is_not_the_packages_fault(
    harness: VerificationHarness,
) -> None:
    broken = harness.place(model(op="Unknown", domain="nobody.knows"))
    climbed = harness.verifier.climb(
        harness.subject(harness.place(model()), claim(), export=broken)
    )
    assert failed(climbed) == []
    assert not_run(climbed) == ["shapes", "samples", "parity"]
    assert told(climbed, "parity").startswith("not run: because the export: ")
