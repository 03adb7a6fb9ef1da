"""A hypothesis applied to a planned cell, and several hypotheses as one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from matrix.digest import BUILD_RECORD, MANIFEST, FileEntry, tree_digest
from matrix.hypotheses import Hypothesis
from matrix.model import Cell, Profile
from matrix.overlay import Unfit, combined, overlay, trial_digest
from matrix.plan import make_plan
from tests.plans.models import EVERYTHING, TARGETS, load, plan_options

HEAD = '[[model]]\nid = "a/b"\ntask = "fill-mask"\nrandom = { architecture = "bert" }\n'
PROFILE = Profile("htp73", "qnn_npu", "qnn")


def cell(folder: Path, text: str = "", label: str = "qnn_npu", **options: Any) -> Cell:
    plan = make_plan(load(folder, HEAD + text), TARGETS, EVERYTHING, plan_options(**options))
    return next(one for one in plan.cells() if one.target.label == label)


def a_hypothesis(name: str = "h", **changes: Any) -> Hypothesis:
    return Hypothesis(id=name, title=name, targets=("*",), axis="pass", **changes)


def test_a_trial_is_what_the_catalog_would_plan(tmp_path: Path) -> None:
    one = a_hypothesis(opset=21, precision="w8a8", build={"samples": 4})
    made = overlay(cell(tmp_path), one)
    text = '[model.target.qnn_npu]\nopset = 21\nprecision = "w8a8"\nbuild = { samples = 4 }\n'
    wanted = cell(tmp_path, text)
    assert made.policy == wanted.policy
    assert made.id == wanted.id == "a/b:fill-mask@qnn_npu:w8a8"


def test_nothing_changes_what_it_does_not_name(tmp_path: Path) -> None:
    text = "[model.build]\nsamples = 16\n[model.shapes]\nsequence_length = 32\n"
    base = cell(tmp_path, text, opset=19)
    made = overlay(base, a_hypothesis(build={"per_channel": False}))
    assert made.policy == replace(base.policy, build={"samples": 16, "per_channel": False})
    assert made.id == base.id


def test_the_precision_of_the_baseline_stays(tmp_path: Path) -> None:
    base = cell(tmp_path, 'precision = ["w8a8", "fp16"]\n')
    assert base.policy.precision == "w8a8"
    made = overlay(base, a_hypothesis(opset=19))
    assert (made.policy.precision, made.id) == ("w8a8", base.id)


def test_lists_are_added_to_those_of_the_catalog(tmp_path: Path) -> None:
    text = '[model.build]\nwithout_passes = ["TransposeOptimizer"]\n'
    made = overlay(cell(tmp_path, text), a_hypothesis(build={"without_passes": ["ConvBNFusion"]}))
    assert made.policy.build == {"without_passes": ["ConvBNFusion", "TransposeOptimizer"]}


def test_a_pass_that_the_catalog_leaves_out_can_be_tried(tmp_path: Path) -> None:
    text = '[model.build]\nwithout_passes = ["BiasGeluFusion"]\n'
    made = overlay(cell(tmp_path, text), a_hypothesis(build={"passes": ["BiasGeluFusion"]}))
    assert made.policy.build == {"passes": ["BiasGeluFusion"]}


@pytest.mark.parametrize(
    ("hypothesis", "label", "reason"),
    [
        (a_hypothesis(opset=23), "qnn_npu", "qnn_npu takes opsets 13 to 21, not 23"),
        (a_hypothesis(precision="w8a8"), "qnn_gpu", "w8a8 is dropped on qnn_gpu"),
        (a_hypothesis(compiled="*"), "qnn_npu", "no device profile of qnn_npu"),
        (a_hypothesis(missing="no such pass"), "qnn_npu", "no such pass"),
        (
            a_hypothesis(build={"passes": ["BiasGeluFusion"], "optimization": "extended"}),
            "qnn_npu",
            "passes goes with optimization basic",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, hypothesis: Hypothesis, label: str, reason: str
) -> None:
    with pytest.raises(Unfit, match=reason):
        overlay(cell(tmp_path, label=label), hypothesis)


def test_a_compiled_trial_is_the_cell_of_a_profile(tmp_path: Path) -> None:
    made = overlay(cell(tmp_path), a_hypothesis(compiled="*"), PROFILE)
    assert made.profile == PROFILE
    assert made.id == "a/b:fill-mask@qnn_npu+htp73"
    assert made.portable.policy == cell(tmp_path).policy


def test_a_combination_has_the_settings_of_all() -> None:
    found = combined(
        [
            a_hypothesis("a", opset=21),
            a_hypothesis("b", build={"passes": ["BiasGeluFusion"], "samples": 4}),
            a_hypothesis("c", build={"passes": ["FastGeluFusion"]}, runtime={"level": "all"}),
        ]
    )
    made = found.hypothesis
    assert made is not None
    assert (made.id, found.parts, found.left_out) == ("a+b+c", ("a", "b", "c"), ())
    assert made.settings == (
        "opset=21", "pass=bias_gelu", "pass=fast_gelu", "quantization=samples:4",
        "runtime=level:all",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ({"opset": 17}, {"opset": 21}, "a sets opset 17, b sets 21"),
        ({"build": {"per_channel": False}}, {"build": {"per_channel": True}}, "per_channel False"),
        ({"runtime": {"level": "all"}}, {"runtime": {"level": "basic"}}, "a sets level all"),
        (
            {"build": {"flags": ["gelu_fusion"]}},
            {"build": {"without_flags": ["gelu_fusion"]}},
            "a runs gelu_fusion, b leaves it out",
        ),
        (
            {"build": {"optimization": "disabled"}},
            {"build": {"passes": ["BiasGeluFusion"]}},
            "a and b: passes goes with optimization basic",
        ),
        ({}, {"combine": False}, "it is tried alone only"),
    ],
)
def test_what_excludes_each_other_is_told(
    one: dict[str, Any], other: dict[str, Any], reason: str
) -> None:
    found = combined([a_hypothesis("a", **one), a_hypothesis("b", **other)])
    assert found.hypothesis is None
    assert found.parts == ("a",)
    ((name, why),) = found.left_out
    assert name == "b"
    assert reason in why


def test_equal_models_have_one_digest_whatever_their_settings_are() -> None:
    model = FileEntry("model.onnx", 3, "aa")
    one = [model, FileEntry(MANIFEST, 2, "bb"), FileEntry(BUILD_RECORD, 2, "cc")]
    other = [model, FileEntry(MANIFEST, 2, "dd")]
    assert trial_digest(one, {}) == trial_digest(other, {}) == tree_digest([model])
    assert trial_digest(one, {"level": "all"}) != trial_digest(one, {"level": "basic"})
    assert trial_digest(one, {"level": "all"}) == trial_digest(other, {"level": "all"})
