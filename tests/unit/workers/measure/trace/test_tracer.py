"""What other processes do while a trace is made is told beside its times."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from matrix.status import FailureClass
from workers.errors import BuildFailed
from workers.measure.subject import Artifact, Graph, Subject
from workers.measure.trace.operators import Window
from workers.measure.trace.result import Trace
from workers.measure.trace.tracer import Plan, Tracer
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import OPENVINO, Runtime

Times = namedtuple("Times", "user system idle iowait")  # noqa: PYI024 - as psutil has it


class Answers:
    """Runtimes whose process has run a model of one operator."""

    def __init__(self, *times: int) -> None:
        self.times = times
        self.checker = SimpleNamespace(call=self._unreadable)

    def _unreadable(self, *_args: Any, **_more: Any) -> None:
        raise BuildFailed(FailureClass.UNKNOWN, "trace", "no model")

    def renew(self, _runtime: Runtime) -> None: ...

    def call(self, *_args: Any, **_more: Any) -> Any:
        row = {"name": "a", "type": "Add", "before": 5, "after": 5}
        result = {
            "at": "", "seen": {"operators": [row]}, "parts": {}, "times": list(self.times),
            "plain": [], "cpu": 3.0,
        }  # fmt: skip
        return SimpleNamespace(result=result)


def traced(folder: Path, *times: int) -> Trace:
    """By OpenVINO, with runs that take so many nanoseconds."""
    graph = Graph("", folder / "m.onnx", (), {})
    runtime = Runtime("openvino", OPENVINO, "cpu", "1")
    tracer = Tracer(cast("Runtimes", Answers(*times)), cast("Any", None))
    subject = Subject(Artifact("m", "0"), (graph,), runtime)
    return tracer.trace(subject, graph, Plan("basic", Window(1, len(times))), folder)


def test_one_run_that_stood_still_is_told(tmp_path: Path) -> None:
    steady = traced(tmp_path, *[1000] * 9, 9000)
    assert "one run took" not in str(steady.metadata.warnings)
    stood = traced(tmp_path, *[1000] * 9, 90_000)
    assert stood.metadata.warnings is not None
    assert stood.metadata.warnings[-1] == (
        "one run took 90 times as long as the others, and OpenVINO tells only the mean of all "
        "runs: trace again"
    )


@pytest.mark.parametrize("others", [0.0, 3.0])
def test_a_trace_on_a_busy_machine_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, others: float
) -> None:
    looks = iter([Times(100, 10, 50, 5), Times(100 + 4 + others, 10, 60, 9)])
    clock, own = iter([0.0, 5.0]), iter([1.0, 2.0])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(looks))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.process_time", lambda: next(own))
    trace = traced(tmp_path, 1000, 3000)
    busy = ("other processes used 30% of the processors meanwhile",)
    assert trace.usable
    assert trace.metadata.warnings == (busy if others else None)
    assert ("warnings" in trace.to_json()["metadata"]) is bool(others)
