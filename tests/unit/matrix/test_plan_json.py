"""The record of a plan makes an equal plan again, through real JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from feed.rules import STRICTEST
from matrix.catalog import load_catalog
from matrix.model import Plan
from matrix.plan import make_plan
from matrix.plan_json import BadRecord, plan_from_record, plan_to_record
from matrix.selector import Selection
from matrix.targets import load_targets
from tests.plans.models import plan_options

CATALOG = """
[[model]]
id = "a/b"
task = "fill-mask"
hub = "a/b"
revision = "main"
precision = ["w8a16", "fp32"]
shapes = {batch = 2}
[model.target."*_gpu"]
skip = "no GPU has the operator"
[model.target.mlas_cpu]
opset = 18
"""


def plan_of(catalog: str, base: Path, **options: Any) -> Plan:
    targets = load_targets(None)
    loaded = load_catalog(catalog, base=base, targets=targets)
    everything = Selection(priorities=("P0", "P1", "P2", "P3"))
    return make_plan(loaded, targets, everything, plan_options("20260609", STRICTEST, **options))


def through_json(plan: Plan) -> Plan:
    return plan_from_record(json.loads(json.dumps(plan_to_record(plan))), STRICTEST)


@pytest.mark.parametrize("catalog", ["demo", "winml"])
def test_packaged_catalogs_come_back_equal(catalog: str, tmp_path: Path) -> None:
    plan = plan_of(catalog, tmp_path)
    again = through_json(plan)
    assert again == plan
    assert [export for model in again.models for export in model.exports] == [
        export for model in plan.models for export in model.exports
    ]


def test_overrides_skips_and_precisions_come_back_equal(tmp_path: Path) -> None:
    (tmp_path / "catalog.toml").write_text(CATALOG)
    plan = plan_of("catalog.toml", tmp_path, self_contained=True, precision=("w8a8",))
    assert through_json(plan) == plan


def test_what_cells_share_is_told_once(tmp_path: Path) -> None:
    record = plan_to_record(plan_of("winml", tmp_path))
    assert len(record["tables"]["target"]) == 8
    assert len(record["tables"]["policy"]) < 40
    # Prefect's and PostgreSQL's limits are far; this one is for the wire.
    assert len(json.dumps(record)) / len(list(plan_of("winml", tmp_path).cells())) < 440


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 1},
        {"format": None},
        {"plan": {"models": [{}]}},
        {"tables": {"target": [], "policy": []}},
        {"tables": {"target": [], "policy": [{"precision": "fp32"}]}},
        {"plan": {"index_package": "only one"}},
        {"plan": 7},
    ],
)
def test_rubbish_is_refused_in_one_line(damage: dict[str, Any], tmp_path: Path) -> None:
    record = {**plan_to_record(plan_of("demo", tmp_path)), **damage}
    with pytest.raises(BadRecord) as refused:
        plan_from_record(record, STRICTEST)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (("plan", "stamp"), "../victim"),
        (("plan", "index_package"), "../../victim"),
        (("plan", "index_version"), "0.0.0-1/.."),
        (("plan", "models", 0, "export_package"), "/victim"),
        (("plan", "models", 0, "export_version"), ".."),
        (("plan", "models", 0, "model", "id"), "a/../b"),
        (("plan", "models", 0, "model", "source", "file"), "../weights.onnx"),
        (("plan", "models", 0, "cells", 0, "id"), "../../victim"),
        (("plan", "models", 0, "cells", 0, "id"), "tiny/other:fill-mask@mlas_cpu"),
        (("plan", "models", 0, "cells", 0, "package"), "../../victim"),
        (("plan", "models", 0, "cells", 0, "version"), "0.0.0-1/../../victim"),
        (("plan", "models", 0, "cells", 0, "origin"), {"version": "1", "tree": "../victim"}),
        (("tables", "target", 0, "label"), "../victim"),
    ],
)
def test_names_that_no_catalog_gives_are_refused(
    place: tuple[Any, ...], name: Any, tmp_path: Path
) -> None:
    record = json.loads(json.dumps(plan_to_record(plan_of("demo", tmp_path))))
    inner = record
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = name
    with pytest.raises(BadRecord, match="the record of the plan is damaged") as refused:
        plan_from_record(record, STRICTEST)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["mlas_cpu", "fill-mask"])
def test_a_name_that_is_wrong_everywhere_is_refused_too(tmp_path: Path, name: str) -> None:
    (tmp_path / "catalog.toml").write_text(CATALOG)
    text = json.dumps(plan_to_record(plan_of("catalog.toml", tmp_path)))
    record = json.loads(text.replace(name, "../victim"))
    with pytest.raises(BadRecord, match=r"victim.* is not a cell id"):
        plan_from_record(record, STRICTEST)


def test_a_field_of_a_later_modelmill_is_refused(tmp_path: Path) -> None:
    record = plan_to_record(plan_of("demo", tmp_path))
    record["tables"]["target"][0]["colour"] = "green"
    with pytest.raises(BadRecord, match=r"unknown field - at `\$\.target\[0\]\.colour`"):
        plan_from_record(record, STRICTEST)
