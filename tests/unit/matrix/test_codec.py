"""Dataclasses through JSON: nothing is lost, nothing of a wrong type comes in."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any

import pytest

from matrix.codec import from_json, parse_json, to_json
from matrix.model import Cell, Model, Overrides, Plan, PlannedModel, Policy, Source, SourceKind
from tests.plans.models import a_model, plan_of

MODEL = Model(
    id="a/b",
    task="fill-mask",
    source=Source(SourceKind.RANDOM, "bert", seed=3, config={"layers": [1, {"deep": None}]}),
    overrides=Overrides(precision=("fp16",), shapes={"batch": 2}, timeout=3.5),
    per_target={"*_gpu": Overrides(skip="why")},
    needs=("os:windows",),
    dataset={"name": "x"},
)


def through(value: object) -> Any:
    return json.loads(json.dumps(to_json(value)))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", "{", b"\xff"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|Expecting|decode"):
        parse_json(text)


def test_a_value_comes_back_equal() -> None:
    assert from_json(through(MODEL), Model) == MODEL
    plan = plan_of([a_model(), MODEL])
    assert from_json(through(plan), Plan) == plan


def test_what_is_missing_has_its_default() -> None:
    source = {"kind": "hub", "ref": "a/b"}
    assert from_json({"id": "a", "task": "", "source": source}, Model) == Model(
        "a", "", Source(SourceKind.HUB, "a/b")
    )


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"id": 3}, r"\$\.id"),
        ({"source": {"kind": "moon", "ref": "x"}}, r"\$\.source\.kind"),
        ({"source": {"kind": "hub", "ref": "x", "colour": 1}}, r"\$\.source\.colour"),
        ({"needs": "os:windows"}, r"\$\.needs"),
        ({"overrides": {"opset": "17"}}, r"\$\.overrides\.opset"),
        ({"per_target": {"*_gpu": {"sikp": "why"}}}, r"\$\.per_target\.\*_gpu\.sikp"),
        ({"colour": "green"}, r"\$\.colour"),
        ({"remote_code": 1}, r"\$\.remote_code"),
    ],
)
def test_a_wrong_value_is_told_with_its_path(change: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError, match=where):
        from_json({**through(MODEL), **change}, Model)


def test_unknown_keys_pass_where_they_are_allowed() -> None:
    assert from_json({**through(MODEL), "colour": "green"}, Model, exact=False) == MODEL


def test_instances_are_taken_as_they_are() -> None:
    (cell, *_rest) = plan_of([MODEL]).cells()
    values = {one.name: getattr(cell, one.name) for one in fields(cell)}
    again = from_json(values, Cell)
    assert again == cell
    assert again.model is cell.model


@pytest.mark.parametrize("kind", [Model, Source, Overrides, Policy, Cell, PlannedModel, Plan])
def test_fields_of_a_plan_that_came_later_have_defaults(kind: type) -> None:
    """Plans that were recorded before a field was added must still be read."""
    first = {
        Model: 3, Source: 2, Overrides: 0, Policy: 10, Cell: 8, PlannedModel: 4, Plan: 5
    }  # fmt: skip
    needed = [one.name for one in fields(kind) if _required(one)]
    assert len(needed) == first[kind], needed


def _required(one: Any) -> bool:
    return one.default is MISSING and one.default_factory is MISSING
