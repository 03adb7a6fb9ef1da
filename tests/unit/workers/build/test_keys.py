from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from matrix.digest import value_digest
from workers.build.graph import key_parts
from workers.build.keys import diff_keys
from workers.engine import SOURCE, StageSpec

TOOLS = {"onnx": "1.17", "torch": "2.4", "unused": "1"}
SPEC = StageSpec("export", {"opset": 17, "shapes": {"batch": 1}}, [SOURCE], ["onnx", "torch"])


def key(**change: Any) -> str:
    given = {
        "engine": "optimum",
        "tools": TOOLS,
        "spec": SPEC,
        "component": "",
        "inputs": {SOURCE: "a" * 64},
        **change,
    }
    return value_digest(key_parts(**given))


def test_a_key_is_a_full_digest_and_the_same_every_time() -> None:
    assert len(key()) == 64
    assert key() == key(tools=dict(reversed(TOOLS.items())))


@pytest.mark.parametrize(
    "change",
    [
        {"engine": "winml"},
        {"component": "encoder"},
        {"inputs": {SOURCE: "b" * 64}},
        {"inputs": {"export": "a" * 64}},
        {"tools": {**TOOLS, "torch": "2.5"}},
        {"spec": replace(SPEC, params={"opset": 18, "shapes": {"batch": 1}})},
        {"spec": replace(SPEC, params={"opset": 17, "shapes": {"batch": 2}})},
        {"spec": replace(SPEC, name="optimize")},
        {"spec": replace(SPEC, tools=["onnx"])},
    ],
)
def test_everything_that_can_change_a_byte_changes_the_key(change: dict[str, Any]) -> None:
    assert key(**change) != key()


def test_a_tool_that_the_stage_does_not_use_changes_nothing() -> None:
    assert key(tools={**TOOLS, "unused": "2"}) == key()


def test_the_difference_of_two_keys_is_one_line_for_each_value() -> None:
    old = key_parts("optimum", TOOLS, SPEC, "", {SOURCE: "a" * 64})
    changed = replace(SPEC, params={"opset": 18, "shapes": {"batch": 1}, "new": True})
    new = key_parts("optimum", {**TOOLS, "onnx": "1.18"}, changed, "", {SOURCE: "b" * 64})
    assert diff_keys(old, new) == [
        "inputs.source: aaaaaaaaaaaa -> bbbbbbbbbbbb",
        "params.new: (nothing) -> True",
        "params.opset: 17 -> 18",
        "tools.onnx: 1.17 -> 1.18",
    ]
    assert diff_keys(old, old) == []


def test_a_change_of_an_engines_code_is_told_in_words() -> None:
    spec = replace(SPEC, tools=["engine.export"])
    old, new = (key_parts("optimum", {"engine.export": digit * 64}, spec, "", {}) for digit in "ab")
    assert diff_keys(old, new) == [
        "the engine's code for export has changed: aaaaaaaaaaaa -> bbbbbbbbbbbb"
    ]
