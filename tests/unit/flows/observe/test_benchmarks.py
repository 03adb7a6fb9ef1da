"""Benchmarks as people read them; no time of an emulator without that word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.measure.results import benchmark_lines, comparison_lines
from flows.observe.evidence import EMULATED
from flows.output.quantity import show_ms
from tests.measuring.runtimes import CPU, NPU, FakeRuntimes, always, crash, subject
from workers.measure.benchmark import Driver, benchmark
from workers.measure.comparison import compare
from workers.measure.result import GraphResult, Protocol
from workers.runtimes.runtime import Runtime

PROTOCOL = Protocol(warmup=2, iterations=20, sessions=3, threads=1)


def shown(runtimes: FakeRuntimes, runtime: Runtime, *components: str) -> list[str]:
    made = subject("m", *components, runtime=runtime)
    return list(benchmark_lines(benchmark(Driver(runtimes), made, PROTOCOL)))


def test_many_runs_a_second_are_written_out() -> None:
    assert any("12,500 runs/s" in line for line in shown(FakeRuntimes({"m": always(80_000)}), CPU))


def test_everything_that_was_measured_is_there() -> None:
    lines = shown(FakeRuntimes({"m": always(1_020_000)}), CPU)
    text = "\n".join(lines)
    for part in (
        "m on CPUExecutionProvider cpu, 1.0",
        "3 sessions of 20 runs after 2 to warm up, 1 thread",
        "p50 1.02 ms  p90 1.02 ms  p95 1.02 ms  p99 1.02 ms",
        "CV 0.0%",
        "980 runs/s",
        "cold 500 ms, warm 250 ms",
        "4.0 MB to open, 1.0 kB more to run",
        "CPUExecutionProvider 3 of 3 (100%)",
        "x: float32 [1, 4]",
    ):
        assert part in text
    assert max(map(len, lines)) <= 70
    assert "emulated" not in text


def test_every_time_of_an_emulator_says_so() -> None:
    lines = shown(FakeRuntimes({"m": always(1_000_000)}), NPU)
    assert "npu (emulated)" in lines[0]
    assert any(EMULATED in line for line in lines)
    for word in ("p50", "runs/s"):
        (line,) = [one for one in lines if word in one]
        assert "emulated" in line


def test_a_failure_is_shown_with_its_class() -> None:
    runtimes = FakeRuntimes({"m": always(1000)})
    runtimes.fails["bench_open"] = crash()
    lines = shown(runtimes, CPU, "text", "vision")
    assert "    FAILED at crash: the engine host died with signal SIGSEGV (CRASH)" in lines


@pytest.mark.parametrize(("runtime", "mark"), [(CPU, ""), (NPU, " (emulated)")])
def test_a_verdict_is_one_line(runtime: Runtime, mark: str) -> None:
    runtimes = FakeRuntimes({"new": always(1_200_000), "old": always(1_000_000)})
    this, other = subject("new", runtime=runtime), subject("old", runtime=runtime)
    lines = list(comparison_lines(compare(Driver(runtimes), this, other, PROTOCOL, 0)))
    assert f"slower{mark}: +20.0% time" in lines
    assert "  new against old," in lines


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.00123, "1.23 us"),
        (0.4, "400 us"),
        (1.234, "1.23 ms"),
        (999.9, "1.00 s"),
        (12345, "12.3 s"),
    ],
)
def test_times_have_three_digits(milliseconds: float, text: str) -> None:
    assert show_ms(milliseconds) == text


def test_nearly_all_nodes_are_not_all() -> None:
    graph = GraphResult("", nodes={"QNNExecutionProvider": 766, "CPUExecutionProvider": 1})
    result = benchmark(Driver(FakeRuntimes({"m": always(1000)})), subject("m"), PROTOCOL)
    session = result.graphs[0].sessions
    lines = "\n".join(benchmark_lines(replace(result, graphs=(replace(graph, sessions=session),))))
    assert "QNNExecutionProvider 766 of 767 (99.9%), CPUExecutionProvider 1 of 767 (0.1%)" in lines
