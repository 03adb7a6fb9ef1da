"""The schema of traces: statuses, keys, and the JSON schema in the docs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from workers.measure.trace.operators import (
    Series,
    added_to_each,
    by_cost,
    estimated,
    p90,
    statistics,
)
from workers.measure.trace.result import (
    FallbackReason,
    Metadata,
    OnnxNode,
    Trace,
    TraceStatus,
)

DOCS = Path(__file__).resolve().parents[5] / "docs"
SCHEMA = json.loads((DOCS / "reference" / "trace.schema.json").read_text("utf-8"))
EXAMPLE = json.loads((DOCS / "samples" / "trace.json").read_text("utf-8"))
TOP = {
    "metadata", "summary", "operators", "statistics", "artifacts", "status", "error",
    "fallback_reason",
}  # fmt: skip


def check(value: Any) -> None:
    jsonschema.validate(value, SCHEMA)


def series(path: str, values: list[float], **facts: Any) -> Series:
    return Series(path, 1, 0, values, 0.25 * len(values), facts)


def test_the_example_in_the_docs_is_a_trace() -> None:
    check(EXAMPLE)
    trace = Trace.from_json(EXAMPLE)
    assert trace.status is TraceStatus.OK
    assert trace.operators
    assert trace.to_json() == EXAMPLE


@pytest.mark.parametrize("status", TraceStatus)
def test_every_status_has_all_top_keys(status: TraceStatus) -> None:
    fallback = status is TraceStatus.BASIC_FALLBACK
    reason = FallbackReason.SDK_MISSING if fallback else None
    trace = Trace(Metadata(model="m"), status, error="why", fallback_reason=reason)
    written = json.loads(json.dumps(trace.to_json()))
    assert written.keys() == TOP
    check(written)
    assert Trace.from_json(written) == trace


def test_a_reason_to_fall_back_belongs_to_its_status() -> None:
    with pytest.raises(ValueError, match="basic_fallback"):
        Trace(Metadata(), TraceStatus.BASIC_FALLBACK)
    with pytest.raises(ValueError, match="sdk_missing"):
        Trace(Metadata(), TraceStatus.OK, fallback_reason=FallbackReason.SDK_MISSING)
    for status in ("ok", "basic_fallback"):
        wrong = {**EXAMPLE, "status": status, "fallback_reason": None}
        if status == "ok":
            wrong["fallback_reason"] = "sdk_missing"
        with pytest.raises(jsonschema.ValidationError):
            check(wrong)


def test_keys_of_a_newer_version_are_left_out() -> None:
    newer = {**EXAMPLE, "heat": 3, "metadata": {**EXAMPLE["metadata"], "soc": "X"}}
    check(newer)
    assert Trace.from_json(newer) == Trace.from_json(EXAMPLE)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        {**EXAMPLE, "status": "fine"},
        {**EXAMPLE, "operators": [{"name": "Conv"}]},
        {**EXAMPLE, "summary": {"inference_us": float("nan")}},
        {**EXAMPLE, "operators": [{**EXAMPLE["operators"][0], "avg_us": "fast"}]},
    ],
)
def test_what_is_no_trace_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"at|object|field"):
        Trace.from_json(wrong)


def test_what_samples_give() -> None:
    one = series("/layer/Conv", [242.94, 188.65, 187.34, 184.95, 185.48]).operator()
    assert one.name == "/layer/Conv"
    assert one.sample_count == 5
    assert one.avg_us == pytest.approx(197.872)
    assert one.total_us == pytest.approx(5 * 197.872)
    assert one.p90_us == pytest.approx(221.224)
    assert one.percent_of_total == pytest.approx(25)


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert p90([7.0]) == 7
    assert p90([10.0, 0.0]) == pytest.approx(9)
    assert p90([3.0, 1.0, 2.0]) == pytest.approx(2.8)
    assert p90([float(number) for number in range(11)]) == 9


def test_statistics_are_filled() -> None:
    conv = (OnnxNode("a", "Conv"), OnnxNode("b", "Relu"))
    made = [
        series("x", [1.0, 3.0], onnx_op_type="Conv", onnx_nodes=conv),
        series("y", [5.0, 7.0], op_type="Softmax"),
        series("z", [0.0, 0.0]),
    ]
    operators = by_cost([one.operator() for one in made])
    assert [one.op_path for one in operators] == ["y", "x", "z"]
    found = statistics(operators, 2, inference=[9.0, 11.0], wall=[10.0, 14.0])
    assert (found.operators, found.mapped_operators, found.onnx_nodes_covered) == (3, 1, 2)
    assert found.other_us == pytest.approx(2)
    assert [(one.type, one.avg_us) for one in found.types] == [
        ("Softmax", 6.0), ("Conv", 2.0), ("(no type)", 0.0),
    ]  # fmt: skip
    assert found.inference is not None
    assert found.inference.mean_us == 10
    assert found.inference.cv == pytest.approx(0.1)
    assert found.wall is not None
    assert found.wall.max_us == 14


def test_a_run_that_stood_still_makes_no_operator_the_largest() -> None:
    made = [
        series("norm", [2.0] * 9 + [90_000.0], op_type="LayerNormalization"),
        series("dense", [400.0] * 10, op_type="MatMul"),
        Series("mean only", 3, 2, mean=100.0, count=10),
    ]
    operators = by_cost([one.operator() for one in made])
    assert [one.op_path for one in operators] == ["dense", "mean only", "norm"]
    assert [one.p50_us for one in operators] == [400, None, 2]
    plain = [410.0] * 9 + [90_000.0]
    found = estimated(operators, 10, plain, added_to_each(operators, 10, plain))
    assert [round(one.estimated_percent or 0) for one in found] == [80, 20, 0]


def test_statistics_of_nothing() -> None:
    found = statistics([], 0)
    assert found.types == ()
    assert found.inference is None
    assert found.other_us is None
