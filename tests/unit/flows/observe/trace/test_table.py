"""One trace as text: columns, widths, and what is said of an emulator or a failure."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from flows.trace.table import lines
from workers.measure.trace.operators import by_cost, statistics
from workers.measure.trace.result import (
    FallbackReason,
    Metadata,
    OnnxNode,
    Operator,
    Summary,
    Trace,
    TraceStatus,
)


def operator(name: str, time: float, share: float, **more: Any) -> Operator:
    return Operator(name, name, 1, time, 4 * time, 4, share, p90_us=1.5 * time, **more)


OPERATORS = by_cost(
    [
        operator("/encoder/layer.3/intermediate/dense/MatMul", 1000, 50, onnx_op_type="MatMul",
                 dram_read_bytes=1_000_000, vtcm_hit_ratio=0.998595),
        operator("/encoder/layer.3/attention/self/query/MatMul", 500, 25, op_type="FullyConnected",
                 onnx_nodes=(OnnxNode("a", "MatMul"), OnnxNode("b", "Add")), dram_read_bytes=42),
        operator("softmax", 300.25, 15, dram_read_bytes=0),
        operator("rest", 100, 5),
    ]
)  # fmt: skip


def trace(level: str = "basic", status: TraceStatus = TraceStatus.OK, **more: Any) -> Trace:
    about = Metadata("model.onnx", "npu", "QNNExecutionProvider", level, "qnn", "", 4, warmup=2,
                     onnx_nodes=7, emulated=more.pop("emulated", False))  # fmt: skip
    summary = Summary(inference_us=2000, operators_us=1900.25, dram_read_bytes=26_000_000,
                      vtcm_peak_bytes=6_619_136, utilization_pct=99.5915)  # fmt: skip
    found = statistics(OPERATORS, 4, [2000.0] * 4)
    return Trace(about, status, summary, OPERATORS, found, **more)


def text(of: Trace, top: int = 3, width: int = 120) -> str:
    return "\n".join(lines(of, top, width))


def test_the_basic_columns() -> None:
    told = text(trace())
    assert "model.onnx on QNNExecutionProvider npu\n" in told
    assert "level basic, 4 iterations after 2 to warm up" in told
    heads = next(line for line in told.splitlines() if line.startswith("Node"))
    assert heads.split() == ["Node", "Type", "Avg", "p90", "%", "Tot"]
    row = next(line for line in told.splitlines() if "query" in line)
    assert row.split() == [
        "/encoder/layer.3/attention/self/query/MatMul", "FullyConnected", "+1", "500", "us",
        "750", "us", "25.0",
    ]  # fmt: skip
    assert "... and 1 more operator, 5.0 %" in told
    assert "inference  2.00 ms\n" in told
    assert "operators  1.90 ms, 99.8 us outside of them" in told
    assert "types      MatMul 50.0 %, FullyConnected 25.0 %, (no type) 20.0 %" in told
    assert "emulat" not in told


def test_the_columns_of_detail() -> None:
    told = text(trace("detail"))
    heads = next(line for line in told.splitlines() if "Node" in line)
    for head in ("#", "Type", "Avg", "Total", "% Tot", "Cum %", "p90", "DRAM(R)", "VTCM Hit"):
        assert head in heads
    first, second, third = (line for line in told.splitlines() if line.lstrip()[:1] in "123" and
                            line.lstrip()[1:3] == "  ")  # fmt: skip
    assert "1.0 MB" in first
    assert "99.9%" in first
    assert ("75.0" in second, "42 B" in second) == (True, True)
    assert ("0 B" in third, "-" in third) == (True, True)
    assert "DRAM read 26.0 MB, VTCM peak 6.6 MB, utilization 99.6 %" in told


def test_operators_are_shown_with_the_time_that_they_are_sorted_by() -> None:
    made = tuple(replace(one, p50_us=one.avg_us / 2) for one in OPERATORS)
    told = text(replace(trace(), operators=made)).splitlines()
    heads, row = next(pair for pair in pairwise(told) if pair[0].startswith("Node"))
    assert heads.split() == ["Node", "Type", "p50", "p90", "%", "Tot"]
    assert row.split()[2:4] == ["500", "us"]


def test_a_warning_stands_above_the_times() -> None:
    busy = "other processes used 55% of the processors meanwhile"
    told = trace()
    told = replace(told, metadata=replace(told.metadata, warnings=(busy,)))
    assert f"\n  warning: {busy}\n" in text(told)


@pytest.mark.parametrize("width", [50, 60, 80, 120])
@pytest.mark.parametrize("level", ["basic", "detail"])
def test_lines_fit_the_terminal(level: str, width: int) -> None:
    told = list(lines(trace(level, emulated=True), 4, width))
    assert max(map(len, told)) <= width
    assert any("/MatMul" in line for line in told)


def test_names_keep_their_ends() -> None:
    told = text(trace(), width=60)
    assert re.search(r"\n\.\.\.\w+/dense/MatMul", told)
    assert "p90" not in told


def test_everything_says_emulated() -> None:
    told = text(trace(emulated=True))
    assert "QNNExecutionProvider npu (emulated)" in told
    assert "say nothing about the device" in told
    for line in told.splitlines():
        if line.startswith(("inference", "operators")):
            assert "(emulated)" in line


def test_a_fallback_says_why_and_shows_the_basic_columns() -> None:
    told = text(
        trace("detail", TraceStatus.BASIC_FALLBACK, error="detail needs the SDK",
              fallback_reason=FallbackReason.SDK_MISSING)
    )  # fmt: skip
    assert "basic_fallback: detail needs the SDK" in told
    assert "level basic" in told
    assert "VTCM Hit" not in told


def test_a_failure_says_why_and_shows_no_table() -> None:
    failed = Trace(Metadata("m", "cpu", "CPUExecutionProvider"), TraceStatus.NOT_RUN, error="boom")
    told = text(failed)
    assert "not_run: boom" in told
    assert "Node" not in told


def estimate(width: int = 120, added: float = 50.0) -> str:
    operators = [
        replace(one, estimated_us=one.avg_us - added, estimated_percent=one.avg_us / 20)
        for one in OPERATORS
    ]
    told = trace()
    summary = replace(told.summary, unprofiled_us=1700.25, profiler_operator_us=added)
    found = statistics(operators, 4, [2000.0] * 4, plain=[1700.25] * 4)
    return text(
        replace(told, operators=tuple(operators), summary=summary, statistics=found), width=width
    )


def test_estimates_stand_beside_what_the_profiler_told() -> None:
    told = estimate()
    heads = next(line for line in told.splitlines() if line.startswith("Node"))
    assert heads.split() == ["Node", "Type", "Avg", "Est", "p90", "%", "Tot"]
    row = next(line for line in told.splitlines() if line.startswith("softmax"))
    assert row.split() == ["softmax", "-", "300", "us", "250", "us", "450", "us", "15.0"]
    assert "inference  1.70 ms, under the profiler 2.00 ms\n" in told
    assert "operators  1.90 ms; Est is without the 50.0 us the profiler adds to each" in told
    narrow = estimate(60).splitlines()
    assert max(map(len, narrow)) <= 60
    heads = next(line for line in narrow if line.startswith("Node"))
    assert heads.split() == ["Node", "Type", "Est", "%", "Tot"]


def test_a_profiler_that_adds_nothing_needs_no_column() -> None:
    told = estimate(added=0.0)
    assert "Est" not in told
    assert "inference  1.70 ms, under the profiler 2.00 ms\n" in told
