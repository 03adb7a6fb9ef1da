"""Benchmarks in the host: what is counted, what stays open, and what a failing runtime gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from machine.waits import untold
from workers.runtimes.bench import Benches, times_of, warm_up
from workers.session import Port

RUNTIME = {"provider": "TestExecutionProvider"}
OPEN = {"file": "m.onnx", "runtime": RUNTIME, "component": "", "inputs": [], "shapes": {}}


class FakeSession:
    """A session that keeps what happens to it."""

    def __init__(self, log: list[str], name: str, broken: bool) -> None:
        self.inputs = [Port("x", "float32", ("batch", 4))]
        self.outputs = [Port("y", "float32", (1, 4))]
        self._log, self._name, self._broken = log, name, broken
        log.append(f"open {name}")

    def expect(self, names: Sequence[str]) -> None: ...

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def prepared(self, feeds: Mapping[str, Any]) -> Callable[[], object]:
        def run() -> None:
            self._log.append(f"run {self._name}")
            if self._broken:
                raise RuntimeError("the device\nis gone")

        return run

    def nodes(self) -> dict[str, int]:
        return {"TestExecutionProvider": 3}

    def assigned(self) -> dict[str, list[list[str]]]:
        return {}

    def parts(self) -> dict[str, int]:
        return {}

    def times(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        self._log.append(f"close {self._name}")


class Host:
    """The operations as the service has them."""

    def __init__(self, *, broken: bool = False) -> None:
        self.log: list[str] = []
        self.benches = Benches(lambda file, _runtime: FakeSession(self.log, file, broken))

    def call(self, op: str, **args: Any) -> dict[str, Any]:
        return self.benches.call(op, args, untold)


def test_a_model_is_opened_twice_and_kept() -> None:
    host = Host()
    told = host.call("bench_open", key="a", **OPEN)
    assert host.log == ["open m.onnx", "close m.onnx", "open m.onnx"]
    assert told["at"] == ""
    assert told["open_cold"] >= 0
    assert told["open_warm"] >= 0
    assert told["nodes"] == {"TestExecutionProvider": 3}
    assert told["inputs"] == {"x": "float32 [1, 4]"}


def test_only_the_first_model_of_a_process_is_opened_cold() -> None:
    host = Host()
    assert host.call("bench_open", key="a", **OPEN)["open_cold"] is not None
    assert host.call("bench_open", key="b", **OPEN)["open_cold"] is None


def test_shapes_are_fixed_by_the_request() -> None:
    told = Host().call("bench_open", key="a", **{**OPEN, "shapes": {"x": [7, 4]}})
    assert told["inputs"] == {"x": "float32 [7, 4]"}


def test_input_values_that_do_not_fit_are_told() -> None:
    told = Host().call("bench_open", key="a", **{**OPEN, "shapes": {"x": [7, 5]}})
    assert told["at"] == "feed"
    assert "[7, 5]" in told["error"]


def test_warm_up_runs_are_not_counted() -> None:
    host = Host()
    host.call("bench_open", key="a", **OPEN)
    told = host.call("bench_run", key="a", iterations=5, warmup=3, settle=0.0)
    assert len(told["times"]) == 5
    assert host.log.count("run m.onnx") == 8
    host.call("bench_close", key="a")
    assert host.log[-1] == "close m.onnx"


def test_a_runtime_that_fails_is_an_answer() -> None:
    host = Host(broken=True)
    host.call("bench_open", key="a", **OPEN)
    told = host.call("bench_run", key="a", iterations=5, warmup=0, settle=0.0)
    assert (told["at"], told["error"]) == ("run", "the device is gone")


def test_times_are_of_single_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0, 10, 13, 20, 25, 40, 2_000_000_041])
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(ticks))
    told: list[str] = []
    assert times_of(lambda: None, 3, told.append) == [3, 5, 2_000_000_001]
    assert told == ["run 3 of 3"]


def test_warming_up_lasts_for_the_time_to_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        clock[0] += 0.25

    warm_up(run, 1, 1.0, untold)
    assert len(runs) == 4
    warm_up(run, 2, 0.0, untold)
    assert len(runs) == 6
