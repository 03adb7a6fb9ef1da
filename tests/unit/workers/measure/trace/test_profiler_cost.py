"""What ONNX Runtime's profiler adds to operators is taken off them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workers.measure.trace.operators import added_to_each, estimated, per_inference, statistics
from workers.measure.trace.result import Operator

TRUE = (6.5, 1.8, 1.2)
RUNS = 40


def operator(name: str, *values: float) -> Operator:
    mean = sum(values) / len(values)
    return Operator(
        name, name, 1, mean, sum(values), len(values), 0.0, samples_us=values, op_type=name
    )


def profiled(added: float, times: int = 10) -> list[Operator]:
    """So many operators of each kind, each told with what the profiler adds."""
    return [operator(f"{time}", *[time + added] * RUNS) for time in TRUE for _ in range(times)]


def test_the_same_is_taken_off_large_and_small_operators() -> None:
    plain = [10 * sum(TRUE)] * RUNS
    operators = profiled(1.6)
    added = added_to_each(operators, RUNS, plain)
    assert added == pytest.approx(1.6)
    found = estimated(operators, RUNS, plain, added)
    assert [one.estimated_us for one in found[::10]] == pytest.approx(TRUE)
    assert [one.avg_us for one in found] == [one.avg_us for one in operators], "kept as told"
    assert sum(one.estimated_percent or 0 for one in found) == pytest.approx(100)
    types = statistics(found, RUNS, plain=plain).types
    assert {one.type: one.estimated_us for one in types} == pytest.approx(
        {f"{time}": 10 * time for time in TRUE}
    )


def test_what_is_outside_of_operators_is_no_cost_of_the_profiler() -> None:
    operators = profiled(0.0)
    plain = [2 * per_inference(operators, RUNS)] * RUNS
    assert added_to_each(operators, RUNS, plain) == 0.0
    found = estimated(operators, RUNS, plain, 0.0)
    assert [one.estimated_us for one in found] == pytest.approx([one.avg_us for one in operators])
    assert sum(one.estimated_percent or 0 for one in found) == pytest.approx(50)


def test_a_machine_that_was_slower_under_the_profiler_leaves_no_operator_below_zero() -> None:
    operators = [operator("large", *[200.0] * RUNS), operator("small", *[1.0] * RUNS)]
    added = added_to_each(operators, RUNS, [100.0] * RUNS)
    assert added == 1.0
    found = estimated(operators, RUNS, [100.0] * RUNS, added)
    assert [one.estimated_us for one in found] == [199.0, 0.0]
    assert [one.estimated_percent for one in found] == [100.0, 0.0]


def test_outliers_do_not_count() -> None:
    operators = [operator("a", *[10.0] * 36, *[5000.0] * 4), operator("b", *[10.0] * 40)]
    assert added_to_each(operators, RUNS, [16.0] * 36 + [9000.0] * 4) == pytest.approx(2.0)


def test_operators_that_do_not_run_every_time() -> None:
    every, half = operator("a", *[12.0] * 40), operator("b", *[12.0] * 20)
    assert added_to_each([every, half], RUNS, [15.0] * RUNS) == pytest.approx(2.0)
    found = estimated([every, half], RUNS, [15.0] * RUNS, 2.0)
    assert [one.estimated_percent for one in found] == pytest.approx([200 / 3, 100 / 3])


def test_nothing_is_divided_by_zero() -> None:
    one = operator("a", 0.0)
    assert added_to_each([one], 1, [0.0]) == 0.0
    assert added_to_each([], 0, [1.0]) == 0.0
    assert added_to_each([one], 1, []) == 0.0
    assert estimated([one], 1, [0.0], 0.0) == (
        replace(one, estimated_us=0.0, estimated_percent=0.0),
    )
