from __future__ import annotations

from typing import Any

import pytest

from flows.observe.evidence import (
    ModelOpening,
    Opening,
    Sharing,
    Side,
    notices_of,
    opening_of,
    sharing_of,
)

OWN = {"own": True, "ran": True, "name": "QNNExecutionProvider npu (emulated)", "emulated": True}
TOLD = {
    "model.onnx": {
        "portable": {"seconds": 0.9, "memory": 7},
        "compiled": {"seconds": 0.1, "memory": 1},
    }
}


def test_a_record_tells_both_sides_and_where_they_were_measured() -> None:
    found = opening_of({"opening": TOLD, "runtimes": [{"own": False}, OWN]})
    model = ModelOpening("model.onnx", Side(0.9, 7), Side(0.1, 1))
    assert found == Opening("QNNExecutionProvider npu (emulated)", True, (model,))


def test_a_model_that_could_not_be_opened_has_no_numbers() -> None:
    told = {"a/model.onnx": {"portable": {"error": "no"}, "compiled": {"seconds": 1, "memory": 2}}}
    found = opening_of({"opening": told})
    assert found == Opening("", False, (ModelOpening("a/model.onnx", Side(), Side(1.0, 2)),))


@pytest.mark.parametrize("record", [None, {}, {"opening": {}}, {"opening": 7}])
def test_nothing_was_measured(record: Any) -> None:
    assert opening_of(record) is None


def test_damaged_runtimes_leave_the_times() -> None:
    assert opening_of({"opening": TOLD, "runtimes": [7, None]}) is not None


@pytest.mark.parametrize(
    "record",
    [
        {"opening": {"m": 7}, "runtimes": 7},
        {"opening": {"m": {"portable": [], "compiled": {"seconds": "1", "memory": None}}}},
    ],
)
def test_a_damaged_record_is_no_error(record: Any) -> None:
    assert opening_of(record) is None


def test_a_record_tells_the_size_of_a_shared_context() -> None:
    told = {"graphs": 2, "together": 7}
    for record in (told, {**told, "apart": 12}):  # of an earlier package
        assert sharing_of({"sharing": record}) == Sharing(2, 7)
    for nothing in (None, {}, {"sharing": 7}, {"sharing": {**told, "graphs": 1}},
                    {"sharing": {"graphs": "2", "together": 7}}):  # fmt: skip
        assert sharing_of(nothing) is None


def test_the_notices_of_stages_are_told_with_their_component() -> None:
    stages = [
        {"stage": "optimize", "component": "", "facts": {"nodes": 7}},
        {"stage": "quantize", "component": "", "facts": {"notice": "quantized again"}},
        {"stage": "quantize", "component": "decoder", "facts": {"notice": "the same"}},
        {"stage": "quantize", "facts": 7},
    ]
    told = {"stages": stages}
    assert notices_of(told) == ["quantized again", "decoder: the same"]
    for damaged in (None, {}, {"stages": 7}, {"stages": [None, 7]}):
        assert notices_of(damaged) == []
