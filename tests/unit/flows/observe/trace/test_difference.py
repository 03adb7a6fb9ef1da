"""Operators of two traces are matched by the nodes that they hold, whatever they are called."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from flows.trace.difference import Difference, difference, lines
from workers.measure.trace.result import Metadata, OnnxNode, Operator, Summary, Trace, TraceStatus

SAMPLES = 4


def op(name: str, us: float, *nodes: str, **values: Any) -> Operator:
    told: dict[str, Any] = {
        "op_path": name,
        "op_id": 0,
        "avg_us": us,
        "total_us": us * SAMPLES,
        "sample_count": SAMPLES,
        "percent_of_total": 0.0,
        "onnx_nodes": tuple(OnnxNode(node, "Conv") for node in nodes) or None,
    }
    return Operator(name, **{**told, **values})


def trace(*operators: Operator, **metadata: Any) -> Trace:
    about = {"ep": "QNNExecutionProvider", "device": "npu", "num_samples": SAMPLES, **metadata}
    return Trace(Metadata(**about), TraceStatus.OK, operators=operators)


def told(found: Difference) -> list[tuple[str, str, float, float]]:
    return [(one.name, one.what, one.before_us, one.after_us) for one in found.groups]


def test_fused_operators_are_matched_with_the_nodes_they_hold() -> None:
    before = trace(op("conv", 10, "conv"), op("relu", 5, "relu"), op("pool", 3, "pool"))
    after = trace(op("conv_relu_0", 9, "conv", "relu"), op("p", 7, "pool"))
    assert told(difference(before, after)) == [
        ("conv", "2 -> 1 operators", 15, 9),
        ("p", "", 3, 7),
    ]
    (first, *_rest) = difference(after, before).groups
    assert (first.what, first.delta_us) == ("1 -> 2 operators", 6)


def test_what_the_profiler_adds_is_no_gain_of_fusing() -> None:
    before = trace(op("conv", 10, "conv"), op("relu", 3, "relu"))
    after = trace(op("conv_relu", 11, "conv", "relu"))
    slow = [
        replace(one, summary=Summary(profiler_operator_us=added))
        for one, added in ((before, 2.0), (after, 2.0))
    ]
    found = difference(*slow)
    assert told(found) == [("conv_relu", "2 -> 1 operators", 9, 9)]
    assert (found.before_us, found.after_us) == (9, 9)
    assert difference(slow[0], after).delta_us == -2, "not where only one tells it"


def test_a_compiled_model_is_matched_by_the_names_that_it_keeps() -> None:
    portable = trace(op("/features/Conv", 10, "/features/Conv"))
    compiled = trace(op("/features/Conv", 6))
    assert told(difference(portable, compiled)) == [("/features/Conv", "", 10, 6)]


def test_operators_that_share_a_tensor_do_the_same_work() -> None:
    before = trace(op("a", 4, "Conv_1", onnx_outputs=("y",)))
    after = trace(op("b", 6, "FusedConv_9", onnx_outputs=("y",)))
    assert told(difference(before, after)) == [("b", "", 4, 6)]


def test_what_the_graph_does_not_know_is_matched_by_its_own_name() -> None:
    before = trace(op("Input OpId_1", 1), op("Transpose", 2))
    after = trace(op("Input OpId_1", 1), op("Cast", 8))
    assert told(difference(before, after)) == [
        ("Cast", "only after", 0, 8),
        ("Transpose", "only before", 2, 0),
        ("Input OpId_1", "", 1, 1),
    ]


def test_an_operator_that_does_not_run_in_every_inference_counts_for_what_it_takes() -> None:
    rare = op("x", 8, "x", total_us=8.0, sample_count=1)
    found = difference(trace(rare), trace(op("x", 8, "x")))
    assert (found.before_us, found.after_us) == (2.0, 8.0)


def test_one_long_sample_makes_no_difference() -> None:
    steady = op("x", 1, "x", samples_us=(1.0, 1.0, 1.0, 1.0))
    disturbed = op("x", 25.75, "x", samples_us=(1.0, 1.0, 100.0, 1.0))
    assert told(difference(trace(steady), trace(disturbed))) == [("x", "", 1, 1)]
    unknown = op("x", 25.75, "x")
    assert difference(trace(steady), trace(unknown)).delta_us == 24.75, "only means are known"


def test_chains_of_overlapping_operators_are_one_group() -> None:
    before = trace(op("ab", 1, "a", "b"), op("cd", 1, "c", "d"))
    after = trace(op("a", 1, "a"), op("bc", 3, "b", "c"), op("d", 1, "d"))
    (group,) = difference(before, after).groups
    assert (group.what, group.before_us, group.after_us) == ("2 -> 3 operators", 2, 5)


def test_what_else_differs_is_told_and_an_emulator_is_called_one() -> None:
    one = trace(op("x", 1, "x"), threads=1, emulated=True)
    other = trace(op("x", 1, "x"), threads=2, device="cpu")
    assert difference(one, other).notes == (
        "device: npu -> cpu",
        "threads: 1 -> 2",
        "before: traced on an emulator, whose times say nothing about the device",
    )
    text = "\n".join(lines(difference(one, replace(other, operators=(op("x", 3, "x"),))), 5, 80))
    assert "before (emulated)  after " in text


def test_the_sum_of_the_groups_is_the_difference() -> None:
    before = trace(*(op(f"b{at}", at + 1.0, f"n{at}", f"n{at + 1}") for at in range(0, 40, 2)))
    after = trace(*(op(f"a{at}", at + 2.5, f"n{at}") for at in range(41)))
    found = difference(before, after)
    assert sum(one.delta_us for one in found.groups) == pytest.approx(found.delta_us)
    assert sum(one["delta_us"] for one in asdict(found)["groups"]) == pytest.approx(found.delta_us)


@pytest.mark.parametrize("width", [60, 120])
def test_the_text_fits_the_terminal(width: int) -> None:
    name = "/encoder/layer.11/attention/self/" + "x" * 60
    before = trace(*(op(f"{name}{at}", 20_000.0, f"{name}{at}") for at in range(9)))
    after = trace(*(op(f"{name}{at}", 100.0 * at, f"{name}{at}") for at in range(9)))
    text = list(lines(difference(before, after), 5, width))
    assert max(map(len, text)) <= width
    assert text[0] == "operators of one inference: 180 ms -> 3.60 ms (-98.0%)"
    assert text[1].split() == ["difference", "before", "after", "operator"]
    assert text[2].split()[:5] == ["-20.0", "ms", "20.0", "ms", "0.00"]
    assert text[-1] == "... and 4 more, -77.4 ms together"


def test_equal_traces_say_so() -> None:
    one = trace(op("x", 1, "x"))
    assert list(lines(difference(one, one), 5, 80)) == [
        "operators of one inference: 1.00 us -> 1.00 us (+0.0%)",
        "no operator takes more or less time",
    ]
    assert difference(trace(), trace()).groups == ()
