"""Results survive JSON, and describe their samples."""

from __future__ import annotations

import json

import pytest

from matrix.codec import from_json, to_json
from matrix.errors import UsageError
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
from workers.measure.subject import Artifact
from workers.runtimes.runtime import Runtime

TIMES = [1_000_000 * number for number in range(1, 101)]


def test_a_result_comes_back_from_json() -> None:
    session = Session(0.5, 0.25, 1 << 20, 0, 50.5, pack(TIMES))
    graphs = (
        GraphResult("", {"x": "float32 [1, 8]"}, {"CPU": 3}, Latency.of(TIMES), (session,)),
        GraphResult("broken", fault=Fault("crash", "CRASH", "died", "the end")),
    )
    runtime = Runtime("qnn", "QNNExecutionProvider", "npu", "1", emulated=True, options={"a": "b"})
    result = Benchmark(
        Artifact("m", "0" * 64), runtime, this_machine(), Protocol(), 1.0, 2.0, graphs, ("warm",)
    )
    again = from_json(json.loads(json.dumps(to_json(result))), Benchmark)
    assert again == result
    assert again.emulated
    assert again.failed


def test_latency_describes_its_samples() -> None:
    found = Latency.of(TIMES)
    assert (found.count, found.min, found.max, found.p50) == (100, 1.0, 100.0, 50.5)
    assert found.p90 == pytest.approx(90.1)
    assert found.p99 == pytest.approx(99.01)
    assert found.throughput == pytest.approx(1000 / 50.5)
    assert found.cv == pytest.approx(found.std / 50.5)
    assert Latency.of([5_000_000]).std == 0.0


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"warmup": -1}, {"sessions": 0}])
def test_a_protocol_that_cannot_be_followed_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="out of range"):
        Protocol(**wrong).check()
