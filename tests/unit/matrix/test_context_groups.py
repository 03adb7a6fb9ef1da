"""Context groups: entries whose compiled graphs share one context, as cells of a plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feed.rules import STRICTEST
from matrix.catalog import load_catalog
from matrix.errors import NothingSelected, PlanError
from matrix.model import Cell, Model, Overrides, Plan
from matrix.plan_json import plan_from_record, plan_to_record
from matrix.selector import Selection
from tests.plans.models import EVERYTHING, OPTIONS, a_model, plan_of, write

NPU = replace(EVERYTHING, targets=("qnn_npu",))
AIMED = replace(OPTIONS, compile=("htp73",))
GROUP = "x/llm@qnn_npu+htp73"


def member(name: str, group: str = "x/llm", **more: Any) -> Model:
    return replace(a_model(name, "text-generation"), context_group=group, **more)


def planned(*models: Model, selection: Selection = NPU, **options: Any) -> Plan:
    return plan_of(models, selection=selection, options=replace(AIMED, **options))


def ids(plan: Plan) -> list[str]:
    return [cell.id for cell in plan.cells()]


def group_of(plan: Plan) -> Cell:
    return next(cell for cell in plan.cells() if cell.members)


PREFILL, DECODE = member("x/prefill"), member("x/decode", needs=("lab",))
TWO = ["x/prefill:text-generation@qnn_npu", "x/decode:text-generation@qnn_npu"]


def test_a_group_is_compiled_as_one_cell_with_its_entries_in_order() -> None:
    plan = planned(PREFILL, DECODE)
    assert ids(plan) == [*TWO, GROUP]
    group = group_of(plan)
    assert [one.id for one in group.members] == TWO
    assert (group.package, group.version) == (
        "modelmill-x-llm", "0.0.0-20260609-qnn-npu-x-llm-htp73",
    )  # fmt: skip
    assert group.needs == ("lab", "compile:htp73")
    assert group.shares_context
    # It is leased apart from its members, and exports nothing of its own.
    assert [len(model.cells) for model in plan.models] == [1, 1, 1]
    assert plan.models[-1].exports == ()


def test_without_a_profile_a_group_changes_nothing() -> None:
    plain = plan_of([a_model("x/prefill", "text-generation")], selection=NPU)
    found = planned(PREFILL, DECODE, compile=())
    assert ids(found) == TWO
    (portable,) = plain.cells()
    assert next(found.cells()) == replace(portable, model=PREFILL)
    assert not [text for text in found.notices if "context" in text]


def test_an_entry_that_is_alone_in_its_group_keeps_its_compiled_cell() -> None:
    (portable, compiled) = planned(PREFILL, a_model()).models[0].cells
    assert compiled.id == f"{portable.id}+htp73"
    assert (compiled.shares_context, compiled.members) == (True, ())
    assert compiled.portable == replace(portable, version=compiled.version, needs=compiled.needs)


def test_a_group_is_selected_by_its_own_name() -> None:
    def selected(**filters: Any) -> Plan:
        return planned(PREFILL, DECODE, selection=replace(NPU, **filters))

    assert ids(selected(models=("x/llm",))) == [GROUP]
    assert [one.id for one in group_of(selected(only=("*+htp73",))).members] == TWO
    some = selected(models=("x/prefill",))
    assert ids(some) == TWO[:1]
    assert "context group x/llm is not compiled for htp73: it is not selected (--model x/llm)" in (
        some.notices
    )
    with pytest.raises(NothingSelected, match="--model 'x/llm' leaves no model"):
        planned(PREFILL, DECODE, selection=replace(NPU, models=("x/llm",)), compile=())


def test_each_precision_that_all_members_have_is_a_cell() -> None:
    both = member("x/prefill", overrides=Overrides(precision=("w8a16", "w8a8")))
    assert ids(planned(both, DECODE))[-1] == GROUP
    every = planned(both, DECODE, precision=("w8a16", "w8a8"))
    assert ids(every)[-2:] == [GROUP, "x/llm@qnn_npu:w8a8+htp73"]
    other = member("x/prefill", overrides=Overrides(precision=("w8a8",)))
    apart = planned(other, DECODE)
    assert not any(cell.members for cell in apart.cells())
    assert any("in which its members agree" in text for text in apart.notices)


def test_a_skipped_member_skips_the_group() -> None:
    skipped = member("x/decode", overrides=Overrides(skip="broken"))
    assert group_of(planned(PREFILL, skipped)).skip == "x/decode:text-generation: broken"


def test_a_group_is_not_called_like_a_model() -> None:
    with pytest.raises(PlanError, match="context_group 'x/resnet' is also the id of a model"):
        planned(member("x/a", "x/resnet"), member("x/b", "x/resnet"), a_model("x/resnet"))


def test_any_machine_reads_a_plan_with_a_group() -> None:
    plan = planned(PREFILL, DECODE)
    assert plan_from_record(json.loads(json.dumps(plan_to_record(plan))), STRICTEST) == plan


def test_the_catalog_names_the_group_of_an_entry(tmp_path: Path) -> None:
    text = '[[model]]\nid = "x/a"\ntask = "text-generation"\ncontext_group = "{}"\n'
    catalog = load_catalog(write(tmp_path, text.format("x/llm")), base=tmp_path)
    assert catalog.models[0].context_group == "x/llm"
    with pytest.raises(PlanError, match="context_group 'a@b': it contains '@'"):
        load_catalog(write(tmp_path, text.format("a@b")), base=tmp_path)


def test_the_packaged_example_has_a_group_and_a_composite(tmp_path: Path) -> None:
    models = load_catalog("contexts", base=tmp_path).models
    compiled = [cell for cell in planned(*models).cells() if cell.shares_context]
    assert {cell.id: len(cell.members) for cell in compiled} == {
        "contexts/t5:text2text-generation@qnn_npu+htp73": 0,
        "contexts/lengths@qnn_npu+htp73": 2,
    }
