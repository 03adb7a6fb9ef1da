"""The plan as a whole: cells, policies, names, notices and every check before anything runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from feed.rules import STRICTEST
from matrix.catalog import load_catalog
from matrix.errors import PlanError
from matrix.model import Model, Overrides
from matrix.plan import make_plan, name_problems
from matrix.plan_json import plan_to_json
from matrix.selector import Selection
from tests.plans.models import (
    EVERYTHING,
    OPTIONS,
    STAMP,
    TARGETS,
    a_model,
    load,
    plan_of,
    plan_options,
)


def numbered(count: int) -> list[Model]:
    return [a_model(f"org{n % 50}/model-{n}", "fill-mask") for n in range(count)]


def test_one_model_is_eight_cells_in_the_order_of_the_matrix() -> None:
    plan = plan_of([a_model()])
    assert [cell.target.label for cell in plan.cells()] == list(TARGETS.labels)
    assert [cell.policy.precision for cell in plan.cells()] == [
        "w8a16",
        "fp32",
        "fp32",
        "w8a16",
        "fp32",
        "fp32",
        "fp32",
        "fp32",
    ]
    assert {cell.policy.opset for cell in plan.cells()} == {17}
    assert plan.notices == ()
    assert plan.models[0].name == "microsoft/resnet-50:image-classification"


def test_a_registry_of_456_entries_plans_completely(tmp_path: Path) -> None:
    entries = [
        {
            "hf_id": f"org{n % 50}/model_{n}",
            "task": ["image-classification", "fill-mask", "text-to-3d"][n % 3],
            "model_type": "bert",
            "group": "Top200",
            "priority": f"P{n % 4}",
            "downloads": n,
        }
        for n in range(456)
    ]
    catalog = load(tmp_path, json.dumps(entries), "models_all.json")
    plan = make_plan(
        catalog, TARGETS, EVERYTHING, plan_options(STAMP, STRICTEST, package="one-package")
    )
    assert len(plan.models) == 456
    assert len({cell.version for cell in plan.cells()}) == 456 * 8
    assert len(list(make_plan(catalog, TARGETS, Selection(), OPTIONS).cells())) == 342 * 8


def test_the_same_input_is_the_same_plan() -> None:
    assert plan_of(numbered(30)) == plan_of(numbered(30))


def test_timeouts_and_skips_come_from_the_catalog_before_the_settings() -> None:
    model = replace(
        a_model(),
        overrides=Overrides(timeout=5),
        per_target={"*_npu": Overrides(skip="no NPU yet", publish_timeout=7)},
    )
    cells = {cell.target.label: cell for cell in plan_of([model]).cells()}
    assert len(cells) == 8
    assert (cells["qnn_npu"].skip, cells["qnn_gpu"].skip) == ("no NPU yet", None)
    assert (cells["qnn_npu"].timeout, cells["qnn_npu"].publish_timeout) == (5, 7)
    assert cells["qnn_gpu"].publish_timeout == 1800


def test_dropped_precisions_are_told_once_with_their_number() -> None:
    plan = plan_of(numbered(3), options=plan_options(STAMP, STRICTEST, precision=("w8a16",)))
    assert len(plan.notices) == 2
    assert any("VitisAIExecutionProvider" in text and "(3 cells)" in text for text in plan.notices)
    cells = {cell.id: cell for cell in plan.cells()}
    vitis = cells["org0/model-0:fill-mask@vitisai_npu"]
    assert (vitis.policy.precision, vitis.policy.asked) == ("fp32", "w8a16")
    assert vitis.policy.notices
    assert "org0/model-0:fill-mask@mlas_cpu:w8a16" in cells


def test_several_precisions_are_several_cells_without_doubles() -> None:
    options = plan_options(STAMP, STRICTEST, precision=("fp32", "w8a8", "int8", "fp16"))
    ids = [cell.id for cell in plan_of([a_model("m", "t")], options=options).cells()]
    assert len(ids) == len(set(ids))
    assert [name for name in ids if "@qnn_npu" in name] == [
        "m:t@qnn_npu:fp32",
        "m:t@qnn_npu:w8a8",
        "m:t@qnn_npu:w8",
        "m:t@qnn_npu:fp16",
    ]
    assert [name for name in ids if "@vitisai" in name] == [
        "m:t@vitisai_npu",
        "m:t@vitisai_npu:fp16",
    ]


def test_an_opset_outside_a_targets_range_is_a_problem_of_the_selected_cells_only() -> None:
    model = replace(a_model(), overrides=Overrides(opset=23))
    with pytest.raises(PlanError) as caught:
        plan_of([model])
    assert len(caught.value.problems) == 7
    assert "opset 23 is outside 13..21, which qnn_npu takes" in str(caught.value)
    assert "[model.target.qnn_npu]" in str(caught.value)
    (cell,) = plan_of([model], selection=Selection(targets=("mlas_cpu",))).cells()
    assert cell.policy.opset == 23
    skipped = replace(model, per_target={"[!m]*": Overrides(skip="opset")})
    assert len(list(plan_of([skipped]).cells())) == 8


def test_an_opset_without_four_bit_integers_is_a_problem_of_the_plain_form_only() -> None:
    model = replace(a_model(), overrides=Overrides(opset=20, precision=("w4",)))
    with pytest.raises(PlanError) as caught:
        plan_of([model])
    assert "w4 on ov_cpu needs opset 21, not 20" in str(caught.value)
    assert "mlas_cpu" not in str(caught.value)


def test_an_opset_flag_is_blamed_once_for_each_target_not_for_each_model() -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(numbered(40), options=plan_options(STAMP, STRICTEST, opset=21))
    (problem,) = caught.value.problems
    assert problem.where == "--opset"
    assert "13..20, which dml_gpu takes" in problem.message


def test_all_problems_of_the_settings_come_together() -> None:
    options = plan_options("", STRICTEST, package="{modle}", precision=("w8a61", "fp16"), opset=99)
    with pytest.raises(PlanError) as caught:
        plan_of([a_model()], options=options, selection=Selection(eps=("qn",)))
    where = [problem.where for problem in caught.value.problems]
    assert {"stamp", "package", "--precision", "--opset", "--ep"} <= set(where)


def test_a_package_takes_no_more_than_its_versions() -> None:
    models = numbered(556)  # with its export and the index: 556 * 9 + 1
    plan = plan_of(models[:555], options=plan_options(STAMP, STRICTEST, package="fixed"))
    assert len(list(plan.cells())) == 4440
    with pytest.raises(PlanError) as caught:
        plan_of(models, options=plan_options(STAMP, STRICTEST, package="fixed"))
    (problem,) = caught.value.problems
    assert problem.where == "package fixed"
    assert "5005 versions, the feed takes 5000" in problem.message
    assert len(list(plan_of(models).cells())) == 556 * 8


def test_cells_that_are_skipped_take_no_version() -> None:
    models = [
        replace(model, per_target={"dml_gpu": Overrides(skip="x")}) for model in numbered(600)
    ]
    plan = plan_of(models, options=plan_options(STAMP, STRICTEST, package="fixed"))
    exports = len(plan.models)
    assert len(list(plan.cells())) + exports > STRICTEST.versions


def test_names_are_checked_even_if_somebody_else_made_them() -> None:
    plan = plan_of([a_model()])
    cells = plan.models[0].cells
    twin = replace(cells[1], version=cells[0].version)
    odd = replace(cells[2], version="1.0", package="Upper")
    broken = replace(plan, models=(replace(plan.models[0], cells=(cells[0], twin, odd)),))
    text = "\n".join(map(str, name_problems(broken, STRICTEST)))
    assert "has the same version as" in text
    assert "'1.0'" in text
    assert "'Upper'" in text


def test_a_plan_as_json(tmp_path: Path) -> None:
    model = replace(a_model(), overrides=Overrides(skip="why", shapes={"batch_size": 1}))
    data = json.loads(json.dumps(plan_to_json(plan_of([model, a_model("b", "")]))))
    assert data["stamp"] == STAMP
    assert data["index"] == {"package": "modelmill-index", "version": "0.0.0-20260609"}
    # A model that is skipped whole is not exported either.
    assert [(item["id"], item["version"]) for item in data["exports"]] == [
        ("b@export", "0.0.0-20260609-export-b")
    ]
    cell = data["cells"][0]
    assert cell["id"] == "microsoft/resnet-50:image-classification@qnn_npu"
    assert {
        key: cell[key] for key in ("model", "task", "target", "precision", "opset", "skip")
    } == {
        "model": "microsoft/resnet-50",
        "task": "image-classification",
        "target": "qnn_npu",
        "precision": "w8a16",
        "opset": 17,
        "skip": "why",
    }
    assert cell["shapes"] == {"batch_size": 1}
    assert len(data["cells"]) == 16


@pytest.mark.parametrize(("name", "models", "tasks"), [("winml", 60, 20), ("demo", 7, 5)])
def test_packaged_catalogs_plan_without_a_problem(
    tmp_path: Path, name: str, models: int, tasks: int
) -> None:
    catalog = load_catalog(name, base=tmp_path, targets=TARGETS)
    assert len(catalog.models) >= models
    assert len({model.task for model in catalog.models}) >= tasks
    assert all(model.group and model.model_type != "unknown" for model in catalog.models)
    plan = make_plan(catalog, TARGETS, EVERYTHING, OPTIONS)
    assert len(list(plan.cells())) == 8 * len(catalog.models)
    assert plan.notices == ()


def test_the_winml_catalog_uses_every_priority(tmp_path: Path) -> None:
    catalog = load_catalog("winml", base=tmp_path)
    assert {model.priority for model in catalog.models} == {"P0", "P1", "P2", "P3"}
    assert len({model.group for model in catalog.models}) >= 5
