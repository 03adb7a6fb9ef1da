"""A sweep measures what it has published, once for each content, runtime and protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from flows.measure import bench_run
from flows.measure.subjects import Choice
from flows.settings.settings import Settings
from machine.ledger import Ledger
from machine.reservations import DISTURBS, VARIABLE
from machine.waits import Cancelled, WaitRules
from matrix.errors import Exit, UsageError
from matrix.model import Plan
from matrix.status import Status
from state.records import BenchState, MeasurementKind
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from workers.measure.benchmark import pack
from workers.measure.result import (
    Benchmark,
    Fault,
    GraphResult,
    Latency,
    Protocol,
    Session,
    this_machine,
)
from workers.measure.subject import Artifact, Graph, Subject
from workers.runtimes.runtime import Runtime
from workers.session import CPU

TIMES = [1_000_000, 2_000_000, 3_000_000]
FAST: dict[str, Any] = {"warmup": 0, "iterations": 3, "sessions": 1}


@dataclass
class FakeBench:
    """Stands for runtimes: measures what it is asked to, or fails."""

    runtime: Runtime = field(default_factory=lambda: Runtime("onnxruntime", CPU, "cpu", "1.23.0"))
    measured: list[str] = field(default_factory=list)
    parts: tuple[str, ...] = ("",)
    error: Callable[[str], Exception | Fault | None] = lambda _cell: None
    seen_quiet: list[bool] = field(default_factory=list)

    @contextmanager
    def finding(self, settings: Settings, threads: int, rules: WaitRules) -> Iterator[FakeBench]:
        assert threads == settings.threads
        assert rules.cancel is not None, "a wait for room ends with the sweep"
        yield self

    @property
    def runtimes(self) -> Any:
        return None

    def published(self, package: str, version: str, choice: Choice) -> Subject:
        assert choice == Choice()
        graphs = tuple(Graph(part, Path("model.onnx")) for part in self.parts)
        artifact = Artifact(f"{package} {version}", "f" * 64, package=package, version=version)
        return Subject(artifact, graphs, self.runtime)

    def benchmark(self, _driver: object, subject: Subject, protocol: Protocol) -> Benchmark:
        self.seen_quiet.append(Ledger().claim([DISTURBS]) is None)
        self.measured.append(subject.artifact.version)
        wrong = self.error(subject.artifact.version)
        if isinstance(wrong, Exception):
            raise wrong
        session = Session(0.2, 0.1, 1000, 10, 2.0, pack(TIMES))
        graphs = tuple(
            GraphResult(part, fault=wrong)
            if wrong
            else GraphResult(part, latency=Latency.of(TIMES), sessions=(session,))
            for part in self.parts
        )
        return Benchmark(
            subject.artifact, subject.runtime, this_machine(), protocol, 1.0, 2.0, graphs
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBench:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "machine"))
    made = FakeBench()
    monkeypatch.setattr(bench_run, "finding", made.finding)
    monkeypatch.setattr(bench_run, "benchmark", made.benchmark)
    return made


def one_cell(stamp: str = "20260609") -> Plan:
    return make_plan(small_model(cells=1), stamp=stamp)


def states(harness: SweepHarness) -> list[BenchState]:
    assert harness.begun is not None
    return [one.state for one in harness.state.benches(harness.begun.info.id)]


def test_every_published_cell_is_measured_on_a_quiet_machine(
    harness: SweepHarness, bench: FakeBench
) -> None:
    bench.parts = ("encoder", "decoder")
    summary = harness.sweep(make_plan(small_model(cells=2)), bench=True, **FAST)
    assert (summary.measured, summary.unmeasured, summary.unmeasurable) == (2, 0, ())
    assert summary.lines() == ["sweep 20260609: 2 cells: 2 published", "benchmarks: 2 measured"]
    assert summary.exit_code() is Exit.OK
    assert bench.seen_quiet == [True, True]
    rows = harness.state.measurements(kind=MeasurementKind.BENCHMARK)
    assert [row.component for row in rows] == ["encoder", "decoder"] * 2
    found = rows[0]
    outcome = harness.outcomes()[found.cell]
    assert (found.tree, found.stamp, found.emulated) == (outcome.tree, "20260609", False)
    assert found.protocol == {"warmup": 0, "iterations": 3, "sessions": 1, "threads": 0}
    assert found.percentiles["p50"] == 2.0
    assert found.detail["open_cold"] == 0.2
    raw = harness.state.raw_of(found.id)
    assert raw is not None
    assert raw["sessions"][0]["samples"] == pack(TIMES)


def test_without_the_setting_nothing_is_measured(harness: SweepHarness, bench: FakeBench) -> None:
    summary = harness.sweep(one_cell())
    assert not summary.measured
    assert bench.measured == []


def test_content_is_measured_once_by_one_protocol_on_one_runtime(
    harness: SweepHarness, bench: FakeBench
) -> None:
    harness.sweep(one_cell(), bench=True, **FAST)
    summary = harness.sweep(one_cell("20260610"), bench=True, **FAST)
    assert summary.measured == 1
    assert len(bench.measured) == 1, "the same content under another stamp"
    harness.sweep(one_cell("20260610"), bench=True, **{**FAST, "iterations": 4})
    assert len(bench.measured) == 2, "another protocol"
    bench.runtime = replace(bench.runtime, version="1.24.0")
    harness.sweep(one_cell("20260611"), bench=True, **FAST)
    assert len(bench.measured) == 3, "another version of the runtime"
    assert len(harness.state.measurements()) == 3


def test_a_failure_costs_its_benchmark_only_and_a_resume_tries_again(
    harness: SweepHarness, bench: FakeBench
) -> None:
    fault = Fault("crash", "CRASH", "the driver died")
    bench.error = lambda version: fault if "gpu" in version else None
    summary = harness.sweep(make_plan(small_model(cells=3)), bench=True, **FAST)
    failed = [one for one in harness.outcomes() if "gpu" in one]
    assert failed
    assert [one.cell for one in summary.unmeasurable] == failed
    assert summary.measured + len(failed) == 3
    assert summary.exit_code() is Exit.CELLS_FAILED
    assert f"  {failed[0]} is not measured: CRASH: the driver died" in summary.lines()
    assert set(harness.statuses().values()) == {Status.PUBLISHED}
    bench.error = lambda _version: None
    bench.measured.clear()
    again = harness.sweep(make_plan(small_model(cells=3)), bench=True, **FAST)
    assert len(bench.measured) == len(failed)
    assert again.exit_code() is Exit.OK


@pytest.mark.parametrize("error", [OSError("disk"), UsageError("no such device"), ValueError()])
def test_any_error_of_a_benchmark_is_told(
    harness: SweepHarness, bench: FakeBench, error: Exception
) -> None:
    bench.error = lambda _version: error
    summary = harness.sweep(one_cell(), bench=True, **FAST)
    (one,) = summary.unmeasurable
    assert one.message


def test_a_stop_leaves_the_benchmark_open(harness: SweepHarness, bench: FakeBench) -> None:
    def stop(_version: str) -> Exception:
        harness.stop.ask()
        return Cancelled("stopped")

    bench.error = stop
    summary = harness.sweep(one_cell(), bench=True, **FAST)
    assert summary.unmeasured == 1
    assert states(harness) == [BenchState.WANTED]
    assert harness.state.measurements() == []


def test_what_an_emulator_measures_is_marked(harness: SweepHarness, bench: FakeBench) -> None:
    bench.runtime = replace(bench.runtime, emulated=True)
    harness.sweep(one_cell(), bench=True, emulated=True, **FAST)
    (row,) = harness.state.measurements()
    assert row.emulated


def test_a_machine_without_the_device_leaves_the_benchmark_to_others(
    harness: SweepHarness, bench: FakeBench
) -> None:
    summary = harness.sweep(one_cell(), bench=True, offers=frozenset({"engine:fake"}), **FAST)
    assert summary.unmeasured == 1
    assert summary.exit_code() is Exit.INTERRUPTED
    assert set(harness.statuses().values()) == {Status.PUBLISHED}
    assert bench.measured == []


def test_building_goes_on_after_a_measurement(harness: SweepHarness, bench: FakeBench) -> None:
    plan = make_plan(small_model("a", cells=1), small_model("b", cells=1))
    summary = harness.sweep(plan, slots=2, bench=True, **FAST)
    assert summary.measured == 2
    assert Ledger().claim([DISTURBS]) is not None
