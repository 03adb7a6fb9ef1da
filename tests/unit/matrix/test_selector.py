"""Selection: what is picked, what is only told, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from feed.rules import STRICTEST
from matrix.codec import from_json, to_json
from matrix.errors import MillError, NothingSelected, PlanError, UsageError
from matrix.globs import compiled, expand
from matrix.model import Model, Plan
from matrix.selector import Selection
from tests.plans.models import STAMP, a_model, plan_of, plan_options


def model(name: str, task: str, kind: str, group: str, priority: str) -> Model:
    return replace(a_model(name, task), model_type=kind, group=group, priority=priority)


MODELS = (
    model("microsoft/resnet-50", "image-classification", "resnet", "Vision", "P0"),
    model("google/vit", "image-classification", "vit", "Vision", "P1"),
    model("google/bert", "fill-mask", "bert", "Text", "P2"),
    model("big/bert", "fill-mask", "bert", "Text", "P3"),
)


def plan(**filters: tuple[str, ...]) -> Plan:
    return plan_of(MODELS, selection=Selection(**filters))


def picked(**filters: tuple[str, ...]) -> set[str]:
    return {cell.model.id for cell in plan(**filters).cells()}


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({}, {"microsoft/resnet-50", "google/vit", "google/bert"}),
        ({"priorities": ("P3",)}, {"big/bert"}),
        ({"priorities": ("p0", "P1")}, {"microsoft/resnet-50", "google/vit"}),
        ({"tasks": ("fill-mask",)}, {"google/bert"}),
        ({"tasks": ("fill-*",)}, {"google/bert"}),
        ({"tasks": ("{fill-mask,x}",)}, {"google/bert"}),
        ({"groups": ("vis*",)}, {"microsoft/resnet-50", "google/vit"}),
        ({"model_types": ("*t",)}, {"google/vit", "google/bert", "microsoft/resnet-50"}),
        ({"model_types": ("[bv]*",)}, {"google/vit", "google/bert"}),
        ({"groups": ("vision",)}, {"microsoft/resnet-50", "google/vit"}),
        ({"model_types": ("bert", "vit")}, {"google/vit", "google/bert"}),
        ({"models": ("google/*",)}, {"google/vit", "google/bert"}),
        ({"models": ("{google/vit,microsoft/*}",)}, {"google/vit", "microsoft/resnet-50"}),
        ({"models": ("google/*",), "tasks": ("fill-mask",)}, {"google/bert"}),
        ({"only": ("*:fill-mask@*",)}, {"google/bert"}),
        ({"skip": ("google/*",)}, {"microsoft/resnet-50"}),
    ],
)
def test_filters_on_models(filters: dict[str, tuple[str, ...]], ids: set[str]) -> None:
    assert picked(**filters) == ids


@pytest.mark.parametrize(
    ("filters", "labels"),
    [
        ({"targets": ("qnn_npu",)}, ["qnn_npu"]),
        ({"targets": ("dml", "QNN-NPU")}, ["qnn_npu", "dml_gpu"]),
        ({"targets": ("*_npu",)}, ["qnn_npu", "ov_npu", "vitisai_npu"]),
        ({"targets": ("{qnn,OV}_npu",)}, ["qnn_npu", "ov_npu"]),
        (
            {"targets": ("[m-q]*_?pu",)},
            ["qnn_npu", "qnn_gpu", "ov_cpu", "ov_npu", "ov_gpu", "mlas_cpu"],
        ),
        ({"eps": ("OV",)}, ["ov_cpu", "ov_npu", "ov_gpu"]),
        ({"devices": ("GPU",)}, ["qnn_gpu", "ov_gpu", "dml_gpu"]),
        ({"eps": ("qnn", "openvino"), "devices": ("npu",)}, ["qnn_npu", "ov_npu"]),
        ({"only": ("*@{qnn,ov}_npu",)}, ["qnn_npu", "ov_npu"]),
        ({"skip": ("*@*_[cg]pu", "*@vitisai*")}, ["qnn_npu", "ov_npu"]),
    ],
)
def test_filters_on_targets(filters: dict[str, tuple[str, ...]], labels: list[str]) -> None:
    cells = plan(models=("google/vit",), **filters).cells()
    assert [cell.target.label for cell in cells] == labels


def test_everything_that_is_malformed_comes_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        plan(
            targets=("qnn_nup",),
            eps=("opnvino",),
            devices=("nqu",),
            priorities=("P7",),
            only=("{a",),
            skip=("a}",),
            models=("{",),
        )
    where = [problem.where for problem in caught.value.problems]
    assert sorted(where) == [
        "--device",
        "--ep",
        "--model",
        "--only",
        "--priority",
        "--skip",
        "--target",
    ]
    assert "did you mean qnn_npu" in str(caught.value)
    assert "did you mean openvino" in str(caught.value)


def test_only_that_matches_nothing_names_the_nearest_ids() -> None:
    with pytest.raises(NothingSelected, match=r"did you mean google/vit:image-classification@"):
        plan(only=("gogle/vit:image-clasification@*",))


def test_one_good_and_one_bad_only_is_refused_too() -> None:
    with pytest.raises(PlanError, match="--only: 'nowhere' matches no cell"):
        plan(only=("google/vit*", "nowhere"))


def test_only_that_meets_just_filtered_cells_says_so() -> None:
    with pytest.raises(NothingSelected, match="matches only cells that the filters leave out"):
        plan(only=("big/bert*",))


def test_a_skip_or_a_value_that_matches_nothing_is_told() -> None:
    notices = plan(skip=("nowhere*",), tasks=("fill-mask", "fil-mask")).notices
    assert notices == (
        "--task 'fil-mask' matches no model of the catalog (did you mean fill-mask?)",
        "1 model of priority P3 left out by default; --priority P0,P1,P2,P3 includes them",
        "--skip 'nowhere*' matches no cell",
    )


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ({"tasks": ("fil-mask",)}, "did you mean fill-mask"),
        ({"models": ("big/bert",)}, "the models that the other filters leave have P3"),
        ({"eps": ("cuda",)}, "no target (qnn_npu, "),
        ({"eps": ("qnn",), "devices": ("cpu",)}, "no target"),
        ({"skip": ("*",)}, "--skip leaves no cell"),
        ({"groups": ("Vision",), "tasks": ("fill-mask",)}, "--group 'Vision' leaves no model"),
    ],
)
def test_nothing_selected_says_which_filter_did_it(
    filters: dict[str, tuple[str, ...]], says: str
) -> None:
    with pytest.raises(NothingSelected) as caught:
        plan(**filters)
    assert says in str(caught.value)
    assert caught.value.exit_code == 4


def test_globs_see_the_precision_only_where_it_is_not_the_default() -> None:
    options = plan_options(STAMP, STRICTEST, precision=("w8a16", "fp16"))
    found = plan_of(
        MODELS, selection=Selection(only=("google/vit:*@qnn_npu", "*@*:fp16")), options=options
    )
    ids = [cell.id for cell in found.cells() if cell.model.id == "google/vit"]
    name = "google/vit:image-classification"
    assert ids[:3] == [f"{name}@qnn_npu", f"{name}@qnn_npu:fp16", f"{name}@qnn_gpu:fp16"]


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a", ["a"]),
        ("{a,b}", ["a", "b"]),
        ("x{a,}y", ["xay", "xy"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"]),
        ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"]),
        ("{}", [""]),
    ],
)
def test_braces(pattern: str, parts: list[str]) -> None:
    assert sorted(set(expand(pattern))) == sorted(parts)


@pytest.mark.parametrize("pattern", ["{", "}", "{a", "a}", "{a}}", "}{"])
def test_a_brace_without_its_partner(pattern: str) -> None:
    with pytest.raises(UsageError, match="unmatched brace"):
        expand(pattern)


def test_a_pattern_cannot_explode() -> None:
    with pytest.raises(MillError, match="more than 256 patterns"):
        expand("{a,b}" * 64)
    with pytest.raises(MillError, match="more than 256 patterns"):
        expand("{" + "," * 5000 + "}")


def test_globs_are_case_sensitive_and_whole() -> None:
    assert compiled("a*").match("a/b")
    assert not compiled("A*").match("a/b")
    assert not compiled("a").match("ab")
    assert not compiled("{a,b}").match("ab")


def test_json_round_trip() -> None:
    selection = Selection(models=("a", "b"), only=("x@*",), priorities=("P3",))
    assert from_json(json.loads(json.dumps(to_json(selection))), Selection) == selection
    assert from_json({}, Selection) == Selection()


def test_what_the_default_priorities_leave_out_is_told() -> None:
    (told,) = plan().notices
    assert told == (
        "1 model of priority P3 left out by default; --priority P0,P1,P2,P3 includes them"
    )
    assert plan(models=("google/*",)).notices == ()
    assert plan(priorities=("P0",)).notices == ()
    assert plan(priorities=("P0", "P1", "P2", "P3")).notices == ()
