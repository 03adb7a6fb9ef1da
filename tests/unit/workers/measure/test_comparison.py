"""Two subjects in turns: the order, the rounds, and what is told if one of them fails."""

from __future__ import annotations

import json

import pytest

from matrix.codec import from_json, to_json
from matrix.errors import UsageError
from tests.measuring.runtimes import CPU, NPU, FakeRuntimes, always, crash, subject
from workers.measure.benchmark import Driver
from workers.measure.comparison import Comparison, Finished, Sessions, compare
from workers.measure.result import Protocol
from workers.measure.verdict import Verdict

PROTOCOL = Protocol(warmup=1, iterations=50, sessions=3)


def made(this: int, other: int, seed: int = 1) -> tuple[Comparison, FakeRuntimes]:
    runtimes = FakeRuntimes({"this": always(this), "other": always(other)})
    return compare(Driver(runtimes), subject("this"), subject("other"), PROTOCOL, seed), runtimes


def test_a_model_that_takes_longer_is_slower() -> None:
    found, runtimes = made(1_100_000, 1_000_000)
    judged = found.graphs[0].judgement
    assert judged is not None
    assert judged.verdict is Verdict.SLOWER
    assert judged.ratio == pytest.approx(1.1, rel=1e-3)
    assert runtimes.counted == {"this": 150, "other": 150, "null": 150}
    assert from_json(json.loads(json.dumps(to_json(found))), Comparison) == found


def test_every_round_has_every_model_once_in_an_order_that_the_seed_decides() -> None:
    found, runtimes = made(1_000_000, 1_000_000)
    orders = found.graphs[0].order
    for order in orders:
        rounds = [order[at : at + 3] for at in range(0, len(order), 3)]
        assert len(rounds) == 20
        assert {"".join(sorted(one)) for one in rounds} == {"not"}
        assert len(set(rounds)) > 3
    assert len(set(orders)) == 3
    turns = [key[0] for op, key in runtimes.asked if op == "bench_run"]
    assert "".join(turns[3:63]) == orders[0], "three to warm up, then what was recorded"
    assert made(1_000_000, 1_000_000)[0].graphs[0].order == orders
    assert made(1_000_000, 1_000_000, seed=2)[0].graphs[0].order != orders


def test_the_models_open_in_any_order() -> None:
    _, runtimes = made(1_000_000, 1_000_000)
    opened = [key for op, key in runtimes.asked if op == "bench_open"]
    assert {tuple(sorted(opened[at : at + 3])) for at in (0, 3, 6)} == {("null", "other", "this")}


def test_few_iterations_make_short_rounds() -> None:
    runtimes = FakeRuntimes({"this": always(1000), "other": always(1000)})
    protocol = Protocol(warmup=0, iterations=3, sessions=2)
    found = compare(Driver(runtimes), subject("this"), subject("other"), protocol, 0)
    assert [len(one) for one in found.graphs[0].order] == [9, 9]
    assert found.this.graphs[0].latency is not None
    assert found.this.graphs[0].latency.count == 6


@pytest.mark.parametrize("side", ["this", "other", "null"])
def test_without_one_of_them_there_is_no_verdict(side: str) -> None:
    runtimes = FakeRuntimes({"this": always(1000), "other": always(1000)})
    runtimes.fails["bench_run"], runtimes.fails_for = crash(), side
    found = compare(Driver(runtimes), subject("this"), subject("other"), PROTOCOL, 0)
    assert found.failed
    assert found.graphs[0].judgement is None
    sides = {"this": found.this, "other": found.other, "null": found.other}
    fault = sides[side].graphs[0].fault
    assert fault is not None
    assert "SIGSEGV" in fault.message
    beside = (found.other if side == "this" else found.this).graphs[0].fault
    assert beside is not None
    assert beside.message.startswith("not measured, because")


def test_graphs_are_matched_by_their_component() -> None:
    runtimes = FakeRuntimes({"this": always(2000), "other": always(1000)})
    this, other = subject("this", "text", "vision"), subject("other", "vision", "text")
    found = compare(Driver(runtimes), this, other, PROTOCOL, 0)
    assert [one.component for one in found.graphs] == ["text", "vision"]
    with pytest.raises(UsageError, match="has the graphs text, vision"):
        compare(Driver(runtimes), this, subject("other"), PROTOCOL, 0)


def test_both_runtimes_begin_anew() -> None:
    runtimes = FakeRuntimes({"this": always(1000), "other": always(1000)})
    this, other = subject("this", runtime=NPU), subject("other", runtime=CPU)
    found = compare(Driver(runtimes), this, other, Protocol(0, 5, 2), 0)
    assert {kind for op, kind in runtimes.asked if op == "renew"} == {"qnn", "onnxruntime"}
    assert (found.this.emulated, found.other.emulated) == (True, False)


@pytest.mark.parametrize("count", [0, 1, 3, 5, 6])
def test_a_comparison_goes_on_from_the_sessions_that_were_finished(count: int) -> None:
    """Two graphs with three sessions each; the order does not depend on what is there."""
    times = {"this": always(2000), "other": always(1000)}
    this, other = subject("this", "text", "vision"), subject("other", "text", "vision")
    all_of_them: list[Finished] = []
    runtimes = FakeRuntimes(times)
    whole = compare(
        Driver(runtimes), this, other, PROTOCOL, 7, Sessions(finished=all_of_them.append)
    )
    assert len(all_of_them) == 6
    new: list[Finished] = []
    again = FakeRuntimes(times)
    rest = compare(
        Driver(again), this, other, PROTOCOL, 7, Sessions(all_of_them[:count], new.append)
    )
    assert [(one.component, one.number, one.order) for one in new] == [
        (one.component, one.number, one.order) for one in all_of_them[count:]
    ]
    assert rest.graphs == whole.graphs
    assert again.counted["this"] == 50 * (6 - count)


def test_sessions_of_another_order_are_measured_again() -> None:
    times = {"this": always(2000), "other": always(1000)}
    kept: list[Finished] = []
    this, other = subject("this"), subject("other")
    compare(Driver(FakeRuntimes(times)), this, other, PROTOCOL, 1, Sessions(finished=kept.append))
    new: list[Finished] = []
    compare(Driver(FakeRuntimes(times)), this, other, PROTOCOL, 2, Sessions(kept, new.append))
    assert len(new) == 3


def test_sessions_that_finished_before_a_crash_are_told() -> None:
    runtimes = FakeRuntimes({"this": always(1000), "other": always(1000)})
    told: list[Finished] = []

    def finished(one: Finished) -> None:
        told.append(one)
        runtimes.fails["bench_run"] = crash()

    found = compare(
        Driver(runtimes), subject("this"), subject("other"), PROTOCOL, 0,
        Sessions(finished=finished),
    )  # fmt: skip
    assert found.failed
    assert [one.number for one in told] == [1]
    assert len(told[0].rounds) == 20
