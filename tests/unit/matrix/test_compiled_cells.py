"""Compiled cells: their ids, names, needs and place in a plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from feed.rules import STRICTEST
from matrix.cellid import CellId, cell_id, parse
from matrix.errors import PlanError, UsageError
from matrix.plan_json import plan_from_record, plan_to_json, plan_to_record
from matrix.selector import Selection
from tests.plans.models import EVERYTHING, OPTIONS, a_model, plan_of

RESNET = "microsoft/resnet-50:image-classification"
AIMED = replace(OPTIONS, compile=("htp73", "ov_cpu"))


def test_the_id_ends_in_the_profile() -> None:
    assert cell_id("a/b", "t", "qnn_npu", None, "htp73") == "a/b:t@qnn_npu+htp73"
    assert cell_id("a/b", "t", "qnn_npu", "w8a8", "htp73") == "a/b:t@qnn_npu:w8a8+htp73"
    assert parse("a/b:t@qnn_npu:w8a8+htp73") == CellId("a/b", "t", "qnn_npu", "w8a8", "htp73")
    assert parse("a+b/c:t@qnn_npu") == CellId("a+b/c", "t", "qnn_npu")
    for text in ("a/b:t@qnn_npu+", "a/b:t@qnn_npu+htp 73", "a/b:t@+htp73"):
        with pytest.raises(UsageError, match="is not a cell id"):
            parse(text)


def test_compiled_cells_come_after_all_portable_ones() -> None:
    cells = list(plan_of([a_model()], options=AIMED).cells())
    compiled = [cell for cell in cells if cell.profile]
    assert [cell.id for cell in compiled] == [
        f"{RESNET}@qnn_npu+htp73", f"{RESNET}@ov_cpu+ov_cpu",
    ]  # fmt: skip
    assert cells[-2:] == compiled
    assert [cell.column for cell in compiled] == ["qnn_npu+htp73", "ov_cpu+ov_cpu"]
    portable = {cell.id: cell for cell in cells}[f"{RESNET}@qnn_npu"]
    assert compiled[0].version == f"{portable.version}-htp73"
    assert compiled[0].package == portable.package
    assert compiled[0].policy == portable.policy


def test_what_a_plan_without_profiles_says_does_not_change() -> None:
    plain = plan_of([a_model()])
    aimed = plan_of([a_model()], options=AIMED)
    assert [cell for cell in aimed.cells() if not cell.profile] == list(plain.cells())
    assert [model.exports for model in aimed.models] == [model.exports for model in plain.models]


@pytest.mark.parametrize(("emulated", "word"), [(False, "compile"), (True, "compile-emulated")])
def test_a_compiled_cell_needs_a_machine_that_compiles_for_it(emulated: bool, word: str) -> None:
    plan = plan_of([a_model()], options=replace(AIMED, emulated=emulated))
    assert {cell.id.partition("@")[2]: cell.needs for cell in plan.cells() if cell.needs} == {
        "qnn_npu+htp73": (f"{word}:htp73",), "ov_cpu+ov_cpu": (f"{word}:ov_cpu",),
    }  # fmt: skip


def test_globs_select_them() -> None:
    def ids(*only: str) -> list[str]:
        selection = replace(EVERYTHING, only=only)
        plan = plan_of([a_model()], selection=selection, options=AIMED)
        return [cell.id.partition("@")[2] for cell in plan.cells()]

    assert ids("*+htp73") == ["qnn_npu+htp73"]
    assert ids("*@qnn_npu*") == ["qnn_npu", "qnn_npu+htp73"]
    assert ids("*@qnn_npu") == ["qnn_npu"]


def test_each_precision_is_compiled() -> None:
    options = replace(AIMED, precision=("w8a16", "w8a8"), compile=("htp73",))
    selection = Selection(targets=("qnn_npu",), priorities=EVERYTHING.priorities)
    plan = plan_of([a_model()], selection=selection, options=options)
    assert [cell.id.partition("@")[2] for cell in plan.cells()] == [
        "qnn_npu", "qnn_npu:w8a8", "qnn_npu+htp73", "qnn_npu:w8a8+htp73",
    ]  # fmt: skip
    assert len({cell.version for cell in plan.cells()}) == 4


def test_a_profile_whose_target_is_not_selected_compiles_nothing_and_says_so() -> None:
    selection = Selection(targets=("mlas_cpu",), priorities=EVERYTHING.priorities)
    plan = plan_of([a_model()], selection=selection, options=AIMED)
    assert [cell.profile for cell in plan.cells()] == [None]
    assert [text for text in plan.notices if "--compile" in text] == [
        "--compile htp73 compiles nothing: it takes cells of qnn_npu, which are not selected",
        "--compile ov_cpu compiles nothing: it takes cells of ov_cpu, which are not selected",
    ]


def test_an_unknown_profile_is_found_by_the_plan() -> None:
    with pytest.raises(PlanError, match=r"--compile.*did you mean htp73"):
        plan_of([a_model()], options=replace(OPTIONS, compile=("htp37",)))
    with pytest.raises(PlanError, match="cannot compile ahead of time"):
        plan_of([a_model()], options=replace(OPTIONS, compile=("mlas_cpu",)))


def test_any_machine_reads_the_plan_with_its_profiles() -> None:
    plan = plan_of([a_model()], options=AIMED)
    record = json.loads(json.dumps(plan_to_record(plan)))
    assert plan_from_record(record, STRICTEST) == plan
    shown = {row["id"]: row["profile"] for row in plan_to_json(plan)["cells"]}
    assert shown[f"{RESNET}@qnn_npu+htp73"] == "htp73"
    assert shown[f"{RESNET}@qnn_npu"] is None


def test_names_that_only_a_profile_would_make_equal_get_a_hash() -> None:
    models = [a_model("a/m", ""), a_model("a/m-htp73", ""), a_model("a/m", "htp73")]
    selection = Selection(targets=("qnn_npu",), priorities=EVERYTHING.priorities)
    plans = [
        plan_of(models, selection=selection, options=replace(OPTIONS, compile=aims))
        for aims in ((), ("htp73",))
    ]
    versions = [{cell.id: cell.version for cell in plan.cells()} for plan in plans]
    assert versions[1]["a/m@qnn_npu+htp73"] == "0.0.0-20260609-qnn-npu-a-m-htp73"
    assert versions[1]["a/m-htp73@qnn_npu"].startswith("0.0.0-20260609-qnn-npu-a-m-htp73-")
    assert len(set(versions[1].values())) == 6
    assert versions[0].items() <= versions[1].items(), "names do not depend on what is compiled"
    assert any("a/m has the plain name" in text for text in plans[1].notices)
