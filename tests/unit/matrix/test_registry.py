"""The replaced system's registry, read as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from feed.rules import STRICTEST
from matrix.catalog import load_catalog
from matrix.errors import PlanError
from matrix.model import Overrides, SourceKind
from matrix.plan import make_plan
from matrix.selector import Selection
from tests.plans.models import EVERYTHING, STAMP, TARGETS, load, plan_options, write

ENTRY = {
    "hf_id": "org/name",
    "task": "image-classification",
    "model_type": "vit",
    "group": "Top200",
    "priority": "P2",
}


def registry(folder: Path, *entries: dict[str, Any]) -> Any:
    return load(folder, json.dumps(entries), "registry.json")


def test_required_keys_become_a_model_and_the_rest_is_carried(tmp_path: Path) -> None:
    optional = {
        "downloads": 1258716,
        "last_update_time": "2024-12-03T14:14:31+00:00",
        "optimum_supported": True,
        "order": 5,
        "tags": ["acc"],
        "op_tracing_targets": ["qnn_npu"],
        "dataset_config": {"path": "imagenet", "split": "validation"},
        "config_overrides": {"perf_args": {"iterations": 10}, "eval_args": {}},
        "something_new": [None, {"deep": 1.5}],
    }
    (model,) = registry(tmp_path, ENTRY | optional).models
    assert (model.id, model.task, model.model_type, model.group, model.priority) == tuple(
        ENTRY.values()
    )
    assert (model.source.kind, model.source.ref) == (SourceKind.HUB, "org/name")
    assert model.overrides == Overrides()
    assert model.extra == optional
    assert model.where == "registry.json: model 1 (org/name)"


@pytest.mark.parametrize(
    ("precision", "found"),
    [("w8a16", ("w8a16",)), ("fp16", ("fp16",)), ("int8", ("w8a8",)), ("auto", ("auto",)),
     (None, None)],
)  # fmt: skip
def test_precisions_mean_what_they_meant_there(
    tmp_path: Path, precision: str | None, found: tuple[str, ...] | None
) -> None:
    (model,) = registry(tmp_path, ENTRY | {"precision": precision}).models
    assert model.overrides.precision == found
    assert model.overrides.skip is None


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"priority": "P9"}, "unknown priority 'P9' (valid: P0, P1, P2, P3)"),
        ({"precision": "w3"}, "unknown precision 'w3'"),
    ],
)
def test_a_fault_is_said_though_the_selection_leaves_its_model_out(
    tmp_path: Path, changed: dict[str, Any], text: str
) -> None:
    catalog = registry(tmp_path, ENTRY | changed, ENTRY | {"hf_id": "org/good", "priority": "P0"})
    plan = make_plan(catalog, TARGETS, Selection(priorities=("P0",)), plan_options(STAMP))
    assert {cell.model.id for cell in plan.cells()} == {"org/good"}
    (notice,) = plan.notices
    assert notice.startswith(f"cannot be built: registry.json: model 1 (org/name): {text}")


@pytest.mark.parametrize("precision", ["w4a8", "int16", "w16a8", "w16a16"])
def test_a_precision_only_the_old_system_builds_is_skipped_with_a_reason(
    tmp_path: Path, precision: str
) -> None:
    (model,) = registry(tmp_path, ENTRY | {"precision": precision}).models
    assert precision in (model.overrides.skip or "")


def test_prebuilt_composites_are_skipped_with_a_reason_and_stay_in_the_plan(tmp_path: Path) -> None:
    catalog = registry(tmp_path, ENTRY | {"composite_onnx": {"encoder": "org/repo/e.onnx"}})
    plan = make_plan(catalog, TARGETS, EVERYTHING, plan_options(STAMP, STRICTEST))
    assert len({cell.id for cell in plan.cells()}) == 8
    assert all("composite_onnx" in (cell.skip or "") for cell in plan.cells())
    assert catalog.models[0].extra["composite_onnx"] == {"encoder": "org/repo/e.onnx"}


def test_order_is_kept_and_one_model_may_have_two_tasks(tmp_path: Path) -> None:
    entries = [ENTRY | {"hf_id": f"z{9 - n}/m"} for n in range(9)]
    catalog = registry(tmp_path, *entries, ENTRY | {"hf_id": "z9/m", "task": "fill-mask"})
    assert [model.id for model in catalog.models][:3] == ["z9/m", "z8/m", "z7/m"]
    assert catalog.models[-1].name == "z9/m:fill-mask"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "must be a list of tables, not {}"),
        ("[]", "holds no model"),
        ("[3]", "registry.json: model 1: must be a table, not 3"),
        ("[", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"a": 1, "a": 2}]', "key 'a' appears twice in one object"),
        ('[{"x": NaN}]', "NaN is not a JSON number"),
        ('[{"x": 1' + "0" * 5000 + "}]", "is not valid JSON"),
        (json.dumps([ENTRY | {"hf_id": ["x"]}]), "hf_id must be a string, not ['x']"),
        (json.dumps([ENTRY | {"hf_id": "a b"}]), "a blank or a control character"),
        (
            json.dumps([ENTRY | {"hf_id": "a\ud800"}]),
            "hf_id contains a value that cannot be stored",
        ),
        (
            json.dumps([ENTRY, ENTRY]),
            "org/name:image-classification has the same id and task as model 1",
        ),
    ],
)
def test_faults(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        load(tmp_path, text, "registry.json")
    found = [str(problem) for problem in caught.value.problems]
    assert any(says in item for item in found), found
    assert all(item.isprintable() and len(item) < 500 for item in found)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"priority": "P4"}, "unknown priority 'P4'"),
        ({"group": None}, "group must be a string, not None"),
        ({"precision": "w9a9"}, "unknown precision 'w9a9'"),
        ({"precision": 8}, "precision must be a string, not 8"),
        ({"composite_onnx": "x"}, "composite_onnx must be an object"),
        ({"new": "\ud800"}, "contains a value that cannot be stored"),
        ({"hf_id": "a/b/c"}, "'a/b/c' is not a Hub id"),
        ({"task": "t!"}, "the task 't!' may hold only letters"),
        ({"task": "fil-mask"}, "unknown task 'fil-mask'"),
    ],
)
def test_an_entry_that_cannot_be_built_is_skipped_with_its_reason(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    path = write(tmp_path, json.dumps([ENTRY | change, ENTRY | {"hf_id": "z/z"}]), "r.json")
    bad, good = load_catalog(path, base=tmp_path, targets=TARGETS, engine="optimum").models
    assert (bad.overrides.skip or "").startswith(f"cannot be built: {why}")
    assert (bad.overrides.skip or "").isprintable()
    assert good.overrides.skip is None


@pytest.mark.parametrize("key", [key for key in ENTRY if key != "hf_id"])
def test_an_entry_that_lacks_a_key_is_skipped_with_its_reason(tmp_path: Path, key: str) -> None:
    broken = {name: value for name, value in ENTRY.items() if name != key}
    good, bad = registry(tmp_path, ENTRY | {"hf_id": "z/z"}, broken).models
    assert bad.overrides.skip == f"cannot be built: {key} is missing"
    assert good.overrides.skip is None


def test_an_entry_without_an_id_is_missed_by_its_number(tmp_path: Path) -> None:
    broken = {name: value for name, value in ENTRY.items() if name != "hf_id"}
    with pytest.raises(PlanError) as caught:
        registry(tmp_path, ENTRY, broken)
    (problem,) = caught.value.problems
    assert (problem.where, problem.message) == ("registry.json: model 2", "hf_id is missing")


def test_an_id_that_is_a_file_in_a_repository_is_a_ready_model(tmp_path: Path) -> None:
    name = "PaddlePaddle/PP-OCRv5_mobile_det_onnx/inference.onnx"
    path = write(
        tmp_path, json.dumps([ENTRY | {"hf_id": name, "task": "text-detection"}]), "r.json"
    )
    (model,) = load_catalog(path, base=tmp_path, targets=TARGETS, engine="optimum").models
    assert model.id == name
    assert model.source.ref == "PaddlePaddle/PP-OCRv5_mobile_det_onnx"
    assert model.source.file == "inference.onnx"
    assert model.overrides.skip is None
