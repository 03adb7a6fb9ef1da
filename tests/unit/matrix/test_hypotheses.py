"""Hypotheses: those that are shipped, and files with faults."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from matrix.errors import PlanError, UsageError
from matrix.findings import read_findings
from matrix.findings import shipped as shipped_findings
from matrix.globs import matches
from matrix.hypotheses import AXES, Hypothesis
from matrix.space import chosen, read_space, shipped
from matrix.vocabulary import CANDIDATES, OPERATORS, pass_name
from tests.plans.models import TARGETS, write

SPACE = read_space(shipped())
GOOD = """
[[hypothesis]]
id = "ours"
title = "Ours"
targets = ["qnn_*"]
axis = "opset"
"""
OPSET = "[hypothesis.changes]\nopset = 21\n"


def read(folder: Path, text: str) -> dict[str, Hypothesis]:
    return read_space([write(folder, text, "space.toml")])


def faults(folder: Path, text: str) -> str:
    with pytest.raises(PlanError) as caught:
        read(folder, text)
    return str(caught.value)


def of_target(label: str, engine: str) -> dict[str, Hypothesis]:
    target = TARGETS.get(label)
    return {name: one.for_engine(engine) for name, one in SPACE.items() if one.applies(target)}


RESEARCH = {
    "qnn_npu": [
        ["opset=17"], ["opset=19"], ["opset=21"],
        ["opset=17", "pass=conv_activation", "pass=conv_add", "pass=conv_bn"],
        ["opset=21", "pass=conv_activation", "pass=conv_add", "pass=conv_bn"],
        ["opset=21", "pass=matmul_transpose"], ["opset=21", "pass=bias_softmax"],
        ["opset=21", "pass=attention"], ["opset=21", "pass=highdimRTR_lowdimRTR"],
        ["opset=17", "pass=conv_add"], ["pass=no_analyzer"],
    ],
    "qnn_gpu": [
        ["opset=17"], ["opset=19"], ["opset=21"],
        ["opset=17", "pass=matmul_transpose"], ["opset=17", "pass=attention"],
        ["opset=17", "pass=bias_softmax"], ["opset=17", "pass=layer_norm"],
        ["opset=17", "pass=skip_layer_norm"],
        ["opset=21", "pass=attention", "pass=matmul_transpose"],
        ["opset=17", "pass=layer_norm", "pass=matmul_transpose", "pass=skip_layer_norm"],
        ["opset=17", "pass=gelu"], ["opset=17", "pass=transpose_optimizer"],
        ["pass=no_analyzer"],
    ],
    "mlas_cpu": [
        ["pass=conv_activation", "pass=conv_add", "pass=conv_bn"], ["pass=gelu"],
        ["pass=layer_norm"], ["pass=matmul_add"], ["pass=transpose_optimizer"], ["opset=21"],
    ],
}  # fmt: skip
"""What older research tried, by target; its baselines are ours."""


@pytest.mark.parametrize("label", RESEARCH)
def test_what_older_research_tried_is_there(label: str) -> None:
    theirs = {tuple(sorted(one.settings)) for one in of_target(label, "winml").values()}
    for wanted in RESEARCH[label]:
        assert tuple(sorted(wanted)) in theirs
    tried = [one for one in of_target(label, "winml").values() if not one.missing]
    assert {tuple(sorted(wanted)) for wanted in RESEARCH[label]} <= {
        tuple(sorted(one.settings)) for one in tried
    }


@pytest.mark.parametrize("label", RESEARCH)
def test_what_optimum_cannot_try_has_a_reason(label: str) -> None:
    space = of_target(label, "optimum")
    for one in space.values():
        assert one.missing or one.settings
    assert sum(not one.missing for one in space.values()) >= 6
    reasons = " ".join(one.missing for one in space.values())
    named = [name for name in SPACE if f"{name} tries" in reasons]
    assert all(not space[name].missing for name in named)


def test_every_finding_about_a_setting_meets_a_hypothesis() -> None:
    settings = {text for one in SPACE.values() for text in one.settings}
    for finding in read_findings(shipped_findings()).values():
        for pattern in finding.settings:
            assert any(matches(text, [pattern]) for text in settings), pattern


def test_each_axis_is_in_use() -> None:
    assert {one.axis for one in SPACE.values()} == set(AXES)


def test_the_sample_of_the_docs_can_be_read() -> None:
    sample = Path(__file__).parents[3] / "docs" / "samples" / "space.toml"
    space = read_space([sample])
    assert {one.axis for one in space.values()} == {"quantization", "pass", "runtime", "compiled"}
    assert not any(one.for_engine("optimum").missing for one in space.values())


def test_a_later_file_replaces_by_id(tmp_path: Path) -> None:
    text = GOOD.replace('"ours"', '"npu-opset-21"') + OPSET
    both = read_space([*shipped(), write(tmp_path, text, "mine.toml")])
    assert len(both) == len(SPACE)
    assert both["npu-opset-21"].title == "Ours"
    assert both["npu-opset-21"].file == "mine.toml"
    assert list(both) == list(SPACE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD, "it changes nothing"),
        (GOOD.replace("title", "titel") + OPSET, "unknown key 'titel' (did you mean title?)"),
        (GOOD.replace('"opset"', '"opsets"') + OPSET, "unknown axis 'opsets' (did you mean opset"),
        (GOOD.replace('"opset"', '"pass"') + OPSET, "axis pass is not one of what it changes"),
        (GOOD.replace("qnn_*", "qnn_nqu") + OPSET, "unknown target 'qnn_nqu' (did you mean qnn_n"),
        (GOOD.replace("ours", "a b") + OPSET, "id 'a b' may hold letters"),
        (GOOD + OPSET + GOOD + OPSET, "id 'ours' is there twice"),
        (GOOD + "[hypothesis.changes]\nopset = 99\n", "opset must be between 7 and 30"),
        (GOOD + '[hypothesis.changes]\nprecision = "w8a88"\n', "unknown precision 'w8a88'"),
        (GOOD + "[hypothesis.changes]\nopest = 21\n", "unknown key 'opest' (did you mean opset?)"),
        (GOOD + '[hypothesis.changes.build]\nflags = ["gelu-fusion"]\n', "mean gelu_fusion"),
        (
            GOOD + OPSET + '[hypothesis.changes.winml]\npasses = ["BiasGeluFusion"]\n',
            "the engine winml has no build option passes (it is one of: optimum, tabular)",
        ),
        (
            GOOD + OPSET + '[hypothesis.runtime]\nhtp_performance_mod = "burst"\n',
            "qnn_gpu has no option 'htp_performance_mod' (did you mean htp_performance_mode?)",
        ),
        (
            GOOD + OPSET + '[hypothesis.runtime]\nhtp_performance_mode = "fast"\n',
            "htp_performance_mode cannot be 'fast'",
        ),
        (GOOD + OPSET + '[hypothesis.runtime]\nvtcm_mb = "some"\n', "must be a whole number"),
        (GOOD + OPSET + '[hypothesis.runtime]\nlevel = "most"\n', "level cannot be 'most' (v"),
        (
            GOOD.replace("qnn_*", "ov_cpu") + OPSET + '[hypothesis.runtime]\nlevel = "all"\n',
            "ov_cpu has no option 'level'",
        ),
        (
            GOOD + OPSET + '[hypothesis.guards]\nneeds = ["Convv"]\n',
            "unknown operator 'Convv' in needs (did you mean Conv",
        ),
        (
            GOOD + OPSET + '[hypothesis.guards]\ncandidates = ["geluu"]\n',
            "unknown candidate 'geluu' in candidates (did you mean gelu",
        ),
        (GOOD + OPSET + "[hypothesis.guards.share]\nConv = [1, 0]\n", "share of Conv must be"),
        (GOOD + OPSET + "[hypothesis.guards.share]\nCon = [0, 1]\n", "unknown operator 'Con' in s"),
        (
            GOOD + OPSET + '[hypothesis.guards]\nnot_for = ["{vit"]\n',
            "not_for: '{vit' has an unmatched brace",
        ),
        (GOOD + 'compiled = "htp}"\n' + OPSET, "compiled: 'htp}' has an unmatched brace"),
        (GOOD + 'missing = "no"\n' + OPSET, "missing says that it cannot be tried"),
        ("hypothesis = 3", "must be a list of tables, not 3"),
        ("hypothesis = [3, { id = 'x' }]", "hypothesis 2 (x): title is missing"),
        ("[[hypothesis", "is not valid TOML"),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    told = faults(tmp_path, text)
    assert problem in told
    assert "space.toml" in told


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        read_space([tmp_path / "none.toml", write(tmp_path, GOOD)])
    assert "none.toml: no such file" in str(caught.value)
    told = str(caught.value)
    assert "catalog.toml: line 2: hypothesis 1 (ours): it changes nothing" in told
    inline = 'hypothesis = [{ id = "ours", title = "x", targets = ["*"], axis = "pass" }]'
    assert "space.toml: hypothesis 1 (ours): it changes nothing" in faults(tmp_path, inline)


def test_one_can_choose_by_name() -> None:
    assert list(chosen(SPACE, ["npu-opset-21"])) == ["npu-opset-21"]
    assert set(chosen(SPACE, ["npu-opset-*"])) == {f"npu-opset-{n}" for n in (17, 19, 21)}
    assert chosen(SPACE, []) == SPACE
    with pytest.raises(UsageError, match=r"no hypothesis is called 'npu-opset-22'.*npu-opset-2"):
        chosen(SPACE, ["npu-opset-22"])


def test_an_engine_gets_its_own_words(tmp_path: Path) -> None:
    one = SPACE["npu-attention-21"]
    assert one.for_engine("winml").build == {"flags": ["attention_fusion"]}
    assert one.for_engine("optimum").build == {"passes": ["AttentionFusion"]}
    assert one.for_engine("other").missing == "the engine other has no such option"
    assert SPACE["npu-low-dimensions-21"].for_engine("optimum").missing.endswith("no such pass")
    text = GOOD + OPSET + '[hypothesis.changes.build]\npasses = ["BiasGeluFusion"]\n'
    ours = read(tmp_path, text)["ours"]
    assert ours.for_engine("optimum").missing == ""
    assert ours.for_engine("winml").missing == "the engine winml has no build option passes"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("GeluFusionL2", "gelu"), ("MatMulAddFusion", "matmul_add"), ("ConvBNFusion", "conv_bn"),
        ("MatmulTransposeFusion", "matmul_transpose"), ("Pad_Fusion", "pad"),
        ("TransposeOptimizer", "transpose_optimizer"), ("nhwc_transformer", "nhwc"),
        ("highdimRTR_lowdimRTR", "highdimRTR_lowdimRTR"), ("conv_bn_fusion", "conv_bn"),
    ],
)  # fmt: skip
def test_engines_and_findings_share_the_names_of_passes(name: str, short: str) -> None:
    assert pass_name(name) == short


def test_every_operator_of_the_standard_is_known() -> None:
    schemas = onnx.defs.get_all_schemas()
    assert {one.name for one in schemas if one.domain in {"", "ai.onnx"}} <= set(OPERATORS)


def test_every_candidate_is_described() -> None:
    assert all(CANDIDATES.values())
