"""Sessions of one subject: new processes, counted runs, and what a failure costs."""

from __future__ import annotations

import pytest

from tests.measuring.runtimes import FakeRuntimes, always, crash, subject
from workers.host.watch import Watching
from workers.measure.benchmark import Driver, benchmark, unpack
from workers.measure.result import Protocol

PROTOCOL = Protocol(warmup=2, iterations=10, sessions=3)


def test_every_session_has_a_new_process_and_all_its_runs() -> None:
    runtimes = FakeRuntimes({"m": always(1_000_000)})
    found = benchmark(Driver(runtimes), subject("m"), PROTOCOL)
    (graph,) = found.graphs
    assert graph.latency is not None
    assert graph.latency.count == 30
    assert graph.latency.p50 == pytest.approx(1.0, rel=1e-4)
    assert [len(unpack(one.samples)) for one in graph.sessions] == [10, 10, 10]
    assert [one.open_cold for one in graph.sessions] == [0.5, 0.5, 0.5]
    assert runtimes.asked.count(("bench_open", "this")) == 3
    opened = [at for at, one in enumerate(runtimes.asked) if one[0] == "bench_open"]
    assert all(runtimes.asked[at - 1][0] == "renew" for at in opened)
    assert runtimes.asked[-1] == ("renew", "onnxruntime"), "no process is left with a model"
    assert found.warnings == ()


def test_a_crash_costs_one_graph_and_leaves_its_class_and_log() -> None:
    runtimes = FakeRuntimes({"m": always(1000)})
    runtimes.fails["bench_run"] = crash()
    found = benchmark(Driver(runtimes), subject("m", "text", "vision"), PROTOCOL)
    text, vision = found.graphs
    assert found.failed
    assert text.fault is not None
    assert (text.fault.at, text.fault.failure) == ("crash", "CRASH")
    assert text.fault.log_tail == "the last words"
    assert runtimes.asked.count(("bench_open", "this")) == 2, "the other graph has its turn"
    del runtimes.fails["bench_run"]
    assert vision.fault is not None


def test_what_a_runtime_refuses_is_told_with_the_place() -> None:
    runtimes = FakeRuntimes({"m": always(1000)})
    runtimes.fails["bench_open"] = {"at": "open", "error": "no kernel for Mystery"}
    (graph,) = benchmark(Driver(runtimes), subject("m"), PROTOCOL).graphs
    assert graph.fault is not None
    assert (graph.fault.at, graph.fault.message) == ("open", "no kernel for Mystery")


def test_drift_from_the_first_to_the_last_session_is_warned_of() -> None:
    sessions = iter([always(1_000_000)(), always(1_050_000)(), always(1_200_000)()])
    runtimes = FakeRuntimes({"m": lambda: next(sessions)})
    (warning,) = benchmark(Driver(runtimes), subject("m"), PROTOCOL).warnings
    assert "the last session was 20% slower than the first" in warning


def test_progress_names_the_session() -> None:
    told: list[str] = []
    runtimes = FakeRuntimes({"m": always(1000)})
    benchmark(Driver(runtimes, Watching(progress=told.append)), subject("m"), PROTOCOL)
    assert told[0] == "session 1 of 3: bench_open"
    assert told[-1] == "session 3 of 3: bench_close"
