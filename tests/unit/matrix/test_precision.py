"""The precision policy: explicit wins, NPU gets w8a16, and no EP gets a graph that kills it."""

from __future__ import annotations

import pytest

from matrix.model import COMMON_OPSET, Overrides, Policy, Target
from matrix.policy import PRECISIONS, Flags, canonical, opset_of, overrides_of, policies, quantized
from tests.plans.models import TARGETS, a_model

QUANTIZED = [name for name in PRECISIONS if quantized(name)]


def choices(asked: tuple[str, ...] | None, target: Target) -> tuple[Policy, ...]:
    return policies(Overrides(precision=asked), target, Flags())


def choose(asked: str | None, target: Target) -> Policy:
    return choices((asked,) if asked else None, target)[0]


@pytest.mark.parametrize(
    ("label", "precision"),
    [
        ("qnn_npu", "w8a16"),
        ("qnn_gpu", "fp32"),
        ("ov_cpu", "fp32"),
        ("ov_npu", "w8a16"),
        ("ov_gpu", "fp32"),
        ("mlas_cpu", "fp32"),
        ("dml_gpu", "fp32"),
        ("vitisai_npu", "fp32"),
    ],
)
def test_defaults(label: str, precision: str) -> None:
    for asked in (None, "auto"):
        choice = choose(asked, TARGETS.get(label))
        assert (choice.precision, choice.default, choice.notices) == (precision, True, ())


@pytest.mark.parametrize("label", ["qnn_gpu", "vitisai_npu"])
@pytest.mark.parametrize("asked", QUANTIZED)
def test_a_quantized_precision_is_dropped_visibly(label: str, asked: str) -> None:
    target = TARGETS.get(label)
    choice = choose(asked, target)
    assert (choice.precision, choice.default, choice.asked) == ("fp32", True, asked)
    assert asked in choice.notices[0]
    assert target.provider in choice.notices[0]


@pytest.mark.parametrize("label", ["qnn_gpu", "vitisai_npu"])
def test_float_precisions_are_never_dropped(label: str) -> None:
    choice = choose("fp16", TARGETS.get(label))
    assert (choice.precision, choice.default, choice.notices) == ("fp16", False, ())


def test_an_explicit_default_is_the_default() -> None:
    assert choose("w8a16", TARGETS.get("qnn_npu")).default
    assert choose("fp32", TARGETS.get("mlas_cpu")).default
    assert not choose("fp32", TARGETS.get("qnn_npu")).default


def test_precisions_that_fall_together_are_one_cell_with_the_notice() -> None:
    for asked in (("fp32", "w8a16"), ("w8a16", "fp32"), ("w8a16", "w8a8", "auto")):
        found = choices(asked, TARGETS.get("vitisai_npu"))
        assert [choice.precision for choice in found] == ["fp32"]
        assert found[0].notices


def test_several_precisions_are_several_cells_in_order() -> None:
    found = choices(("fp16", "w8a16", "w8"), TARGETS.get("qnn_npu"))
    assert [(c.precision, c.default) for c in found] == [
        ("fp16", False),
        ("w8a16", True),
        ("w8", False),
    ]


@pytest.mark.parametrize(
    ("name", "found"),
    [("INT8", "w8"), (" w8a8 ", "w8a8"), ("Auto", "auto"), ("float16", "fp16"), ("int4", "w4"),
     ("W4A32", "w4"), ("w4a16", "w4a16"), ("w4a8", None), ("", None)],
)  # fmt: skip
def test_names(name: str, found: str | None) -> None:
    assert canonical(name) == found


def test_who_wins() -> None:
    target = TARGETS.get("mlas_cpu")
    flags = Flags(precision=("w8a8",), opset=18)
    (policy,) = policies(Overrides(), target, flags)
    assert (policy.precision, policy.opset, policy.quantizer) == ("w8a8", 18, "qnn")
    (policy,) = policies(Overrides(precision=("fp16",), opset=19), target, flags)
    assert (policy.precision, policy.opset, policy.quantizer) == ("fp16", 19, None)


def test_an_auto_in_the_catalog_is_stronger_than_the_flag() -> None:
    (policy,) = policies(Overrides(precision=("auto",)), TARGETS.get("qnn_npu"), Flags(("fp16",)))
    assert (policy.precision, policy.default) == ("w8a16", True)


def test_four_bits_have_the_form_of_the_target_and_an_opset_that_knows_it() -> None:
    found = {}
    for label in ("mlas_cpu", "dml_gpu", "ov_cpu", "qnn_npu", "qnn_gpu"):
        policy = choose("w4", TARGETS.get(label))
        found[label] = (policy.precision, policy.quantizer, policy.opset)
    assert found == {
        "mlas_cpu": ("w4", "MatMulNBits", 17),
        "dml_gpu": ("w4", "MatMulNBits", 17),
        "ov_cpu": ("w4", "DequantizeLinear", 21),
        "qnn_npu": ("w4", "DequantizeLinear", 21),
        "qnn_gpu": ("fp32", None, 17),
    }
    (policy,) = policies(Overrides(precision=("w4",), opset=20), TARGETS.get("ov_cpu"), Flags())
    assert policy.opset == 20


def test_all_targets_share_one_export() -> None:
    assert {opset_of(Overrides(), target, Flags()) for target in TARGETS} == {COMMON_OPSET}


def test_a_targets_entry_is_laid_over_the_models() -> None:
    from dataclasses import replace

    model = replace(
        a_model(),
        overrides=Overrides(
            precision=("fp16",), opset=15, shapes={"batch_size": 2, "width": 64}, timeout=10
        ),
        per_target={
            "*_npu": Overrides(precision=("w8a8",), shapes={"batch_size": 1}, skip="no"),
            "qnn_npu": Overrides(opset=20),
        },
    )
    found = overrides_of(model, TARGETS.get("qnn_npu"))
    assert found == Overrides(("w8a8",), 15, {"batch_size": 1, "width": 64}, 10, None, "no")
    assert overrides_of(model, TARGETS.get("mlas_cpu")) == model.overrides


def test_a_quantized_policy_holds_the_catalogs_own_threshold() -> None:
    asked = {"snr": 15.0, "max_abs": None, "reason": "two logits near zero"}
    rules = {"parity": {"w8a16": asked}}
    overrides = Overrides(precision=("w8a16", "w8a8", "fp32"), verify=rules)
    found = policies(overrides, TARGETS.get("qnn_npu"), Flags())
    assert {one.precision: one.parity for one in found} == {
        "w8a16": {"snr": 15.0}, "w8a8": {}, "fp32": {}
    }  # fmt: skip
