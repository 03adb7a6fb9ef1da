"""Latency is compared only between what was measured in the same way, and marked where it is no
evidence for a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flows.observe.diff.comparison import ChangeKind, compare
from flows.observe.diff.text import lines
from flows.observe.evidence import EMULATED
from flows.observe.latency import changes, protocol_of, runtime_of, view_of
from matrix.status import Status
from state.records import BenchState, Facts, Measurement, MeasurementKind, SweepInfo
from state.state import State
from tests.states.reported import reported
from tests.states.samples import TREE, begin, rows, take
from tests.sweeps.in_memory import SweepHarness

PROTOCOL = {"warmup": 20, "iterations": 500, "sessions": 3, "threads": 0}
OTHER = "b" * 64


def measured(
    p50: float, sessions: Sequence[float] = (), number: int = 1, **values: Any
) -> Measurement:
    told: dict[str, Any] = {
        "kind": MeasurementKind.BENCHMARK,
        "tree": TREE,
        "cell": "m:t@mlas_cpu",
        "stamp": "b",
        "runtime": "onnxruntime",
        "provider": "CPUExecutionProvider",
        "device": "cpu",
        "version": "1.23.0",
        "emulated": False,
        "machine": "box",
        "protocol": PROTOCOL,
        "percentiles": {"p50": p50, "p99": p50 * 2},
        "detail": {"sessions": [float(one) for one in sessions or [p50]]},
        "id": number,
    }
    return Measurement(**{**told, **values})


BEFORE = measured(2.0, [1.9, 2.1], stamp="a")
AFTER = measured(3.0, [2.9, 3.1], 2)


def told(before: Measurement, after: Measurement) -> list[str]:
    return [str(one) for one in changes([before], [after], ("a", "b"))]


def test_a_clear_change_is_told_in_percent() -> None:
    assert told(BEFORE, AFTER) == [
        "latency p50 2.00 ms -> 3.00 ms (+50.0%) on CPUExecutionProvider cpu"
    ]
    (change,) = changes([BEFORE], [AFTER], ("a", "b"))
    assert change.clear


def test_sessions_that_overlap_are_told_as_noise() -> None:
    (text,) = told(measured(2.0, [1.9, 3.5]), AFTER)
    assert text.endswith("(+50.0%) on CPUExecutionProvider cpu, within the noise of its sessions")


@pytest.mark.parametrize(
    "other",
    [
        {"device": "npu"},
        {"provider": "QNNExecutionProvider"},
        {"runtime": "openvino"},
        {"emulated": True},
        {"protocol": {**PROTOCOL, "iterations": 10}},
        {"component": "decoder"},
        {"kind": MeasurementKind.TRACE},
        {"percentiles": {}},
        {"percentiles": {"p50": "fast"}},
        {"id": 1},
    ],
)
def test_what_was_measured_otherwise_is_not_compared(other: dict[str, Any]) -> None:
    assert told(BEFORE, replace(AFTER, **other)) == []


def test_what_else_differs_is_told() -> None:
    other = replace(AFTER, version="1.24.0", machine="tower")
    assert told(BEFORE, other)[0].endswith(
        "; runtime 1.23.0 -> 1.24.0; on another machine: box -> tower"
    )


def test_an_emulator_is_compared_with_itself_and_called_one() -> None:
    pair = [replace(one, emulated=True, device="npu") for one in (BEFORE, AFTER)]
    (text,) = told(*pair)
    assert "npu (emulated)" in text
    assert text.endswith(f"; {EMULATED}")


def test_a_sweep_s_own_measurement_counts_before_a_newer_one() -> None:
    newest = measured(9.0, number=3, stamp="c")
    (change,) = changes([BEFORE, newest], [AFTER, newest], ("a", "b"))
    assert (change.before, change.after) == (2.0, 3.0)
    (change,) = changes([BEFORE], [newest], ("a", "b"))
    assert change.after == 9.0, "the same content, measured for another sweep"


def compared(**values: Any) -> Measurement:
    """The subject of the second sweep against what the first one had."""
    other = {
        "name": "before", "cell": "", "tree": OTHER, "on": "CPUExecutionProvider cpu",
        "percentiles": {"p50": 2.0},
    }  # fmt: skip
    detail = {
        "verdict": "slower", "why": "all 3 sessions agree", "ratio": 1.5, "low": 1.4,
        "high": 1.6, "floor": 0.02, "other": {**other, **values.pop("other", {})},
    }  # fmt: skip
    detail |= values.pop("detail", {})
    return replace(
        measured(3.0, kind=MeasurementKind.COMPARISON, detail=detail, number=9), **values
    )


def test_a_comparison_in_turns_decides() -> None:
    before, after = replace(BEFORE, tree=OTHER), [AFTER, compared()]
    (change,) = changes([before], after, ("a", "b"), OTHER)
    assert change.clear
    assert str(change) == (
        "latency p50 2.00 ms -> 3.00 ms (+50.0%) on CPUExecutionProvider cpu, in turns: "
        "slower (95 % interval +40.0% to +60.0%, noise floor 2.0%)"
    )
    (alone,) = changes([], after, ("a", "b"), OTHER)
    assert alone == change, "also where nothing else was measured"
    noisy = compared(detail={"verdict": "too noisy to say"})
    assert [one.clear for one in changes([], [noisy], ("a", "b"), OTHER)] == [False]


@pytest.mark.parametrize(
    "values",
    [
        {"other": {"tree": TREE}},
        {"other": {"on": "OpenVINOExecutionProvider cpu"}},
        {"other": {"percentiles": {}}},
        {"other": {"percentiles": "fast"}},
        {"detail": {"low": "x"}},
        {"detail": {"other": "x"}},
        {"percentiles": {}},
    ],
)
def test_a_comparison_with_something_else_or_of_rubbish_decides_nothing(
    values: dict[str, Any],
) -> None:
    assert list(changes([], [compared(**values)], ("a", "b"), OTHER)) == []


def test_a_report_shows_no_rubbish() -> None:
    view = view_of(replace(AFTER, detail={"throughput": "x", "warnings": "y"}, protocol={}))
    assert "throughput" not in view
    assert "warnings" not in view
    assert "protocol" not in view
    assert protocol_of(PROTOCOL) == "3 sessions of 500 runs after 20 to warm up"
    assert protocol_of({"sessions": 1, "iterations": 1, "threads": 2}) == (
        "1 session of 1 run, 2 threads"
    )
    assert runtime_of(replace(AFTER, emulated=True)) == "CPUExecutionProvider cpu (emulated)"


def published(state: State, stamp: str, tree: str) -> SweepInfo:
    cells = [replace(row, bench={"bench:cpu/cpu"}) for row in rows(1, stamp=stamp)]
    info = begin(state, cells, stamp=stamp)
    held = take(state, info)
    for row in cells:
        state.record(held, info.id, row.cell, Status.PUBLISHED, Facts(tree=tree))
    state.release(held, done=True)
    return info


def test_a_diff_tells_latencies_also_of_content_that_did_not_change(
    harness: SweepHarness,
) -> None:
    state = harness.state
    first, second = published(state, "a", TREE), published(state, "b", TREE)
    state.keep(BEFORE)
    state.keep(replace(AFTER, version="1.24.0"))
    comparison = compare(state, first, second)
    assert {change.verdict for change in comparison.changes} == {ChangeKind.UNCHANGED}
    assert not comparison.differs
    text = list(lines(comparison))
    assert text[0] == "latency (2 measured in both)"
    assert text[2].endswith("(+50.0%) on CPUExecutionProvider cpu; runtime 1.23.0 -> 1.24.0")
    assert comparison.to_json()["cells"][0]["latency"][0]["after"] == 3.0


def test_a_report_shows_benchmarks_and_why_others_are_missing(harness: SweepHarness) -> None:
    state = harness.state
    first, second = published(state, "a", OTHER), published(state, "b", TREE)
    state.keep(replace(BEFORE, tree=OTHER))
    state.keep(replace(AFTER, emulated=True))
    state.keep(compared())
    held = take(state, second)
    failed = state.to_measure(held)[0].cell
    state.unmeasurable(held, failed, "the driver crashed with api_key=0123456789")
    assert {one.state for one in state.benches(second.id)} == {
        BenchState.FAILED,
        BenchState.WANTED,
    }
    document = reported(state, second, first)
    by_cell = {one["id"]: one for one in document["cells"]}
    (view,) = by_cell[failed]["benchmarks"]
    assert (view["p50"], view["emulated"], view["on"]) == (
        3.0,
        True,
        "CPUExecutionProvider cpu (emulated)",
    )
    (in_turns,) = by_cell[failed]["comparisons"]
    assert (in_turns["verdict"], in_turns["against"], in_turns["other_p50"]) == (
        "slower",
        "before",
        2.0,
    )
    assert by_cell[failed]["unmeasured"] == "the driver crashed with api_key=***"
    (other,) = (one["unmeasured"] for cell, one in by_cell.items() if cell != failed)
    assert other == "waits for a machine that offers bench:cpu/cpu"
    (told,) = {text for one in document["comparison"]["changes"] for text in one["deltas"]}
    assert "in turns: slower" in told, "an emulator is not compared, and the comparison is none"
