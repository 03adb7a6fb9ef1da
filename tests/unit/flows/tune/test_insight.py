"""What is known of a model: facts, or a reason why there are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from flows.tune.insight import (
    Candidate,
    Insight,
    TopOperator,
    graph_insight,
    joined,
    with_session,
    with_trace,
)
from matrix.codec import from_json, to_json
from matrix.status import FailureClass
from tests.measuring.runtimes import CPU
from workers.errors import BuildFailed
from workers.host.client import Host, Reply
from workers.measure.result import Benchmark, GraphResult, Protocol, this_machine
from workers.measure.subject import Artifact
from workers.measure.trace.result import Metadata, Statistics, Trace, TraceStatus, TypeTotal

FACTS = {
    "opset": 17,
    "nodes": 10,
    "operators": {"Conv": 6, "Relu": 4},
    "dynamic": ["x[0] batch"],
    "candidates": [{"name": "conv_activation", "count": 4, "evidence": ["a", "b", "c"]}],
}


class Checker:
    """Answers with facts, or fails."""

    def __init__(self, failure: BuildFailed | None = None) -> None:
        self.failure = failure

    def call(self, op: str, args: dict[str, Any], **_more: Any) -> Reply:
        assert op == "facts"
        assert Path(args["file"]).is_absolute()
        if self.failure:
            raise self.failure
        return Reply(FACTS, 0, 0.0)


def host(failure: BuildFailed | None = None) -> Host:
    return cast("Host", Checker(failure))


def test_a_graph_that_cannot_be_read_has_no_shares() -> None:
    failure = BuildFailed(FailureClass.UNSUPPORTED, "insight", "onnx is not installed")
    found = graph_insight(host(failure), {"encoder": Path("m.onnx")})
    assert not found.available
    assert found.reason == "encoder: onnx is not installed"
    assert found.share("Conv") is None
    assert found.count("Conv") is None
    assert found.lines() == ["the graph is not known: encoder: onnx is not installed"]
    assert graph_insight(host(), {}).reason == "the model has no graph"


def test_the_facts_of_one_graph() -> None:
    found = graph_insight(host(), {"": Path("m.onnx")})
    assert found.share("Conv") == pytest.approx(0.6)
    assert found.share("Gemm") == 0
    assert found.candidate("conv_activation") == Candidate("conv_activation", 4, ("a", "b", "c"))
    assert found.lines() == [
        "opset 17, 10 nodes; Conv 60%",
        "open dimensions: x[0] batch",
        "conv_activation: 4, e.g. a",
    ]


def test_components_are_added() -> None:
    other = {**FACTS, "operators": {"MatMul": 5}, "nodes": 5, "opset": 19}
    found = joined([("encoder", FACTS), ("decoder", other)])
    assert (found.opset, found.nodes) == (19, 15)
    assert list(found.operators) == ["Conv", "MatMul", "Relu"]
    (one,) = found.candidates
    assert (one.count, one.evidence) == (8, ("encoder: a", "encoder: b", "encoder: c"))
    assert found.dynamic == ("encoder: x[0] batch", "decoder: x[0] batch")


@pytest.mark.parametrize(
    ("nodes", "provider", "taken"),
    [
        ({"QNNExecutionProvider": 3, "CPUExecutionProvider": 1}, "QNNExecutionProvider", 0.75),
        ({"OpenVINO CPU": 4}, "OpenVINOExecutionProvider", 1.0),
        ({"CPUExecutionProvider": 4}, "QNNExecutionProvider", 0.0),
        ({}, "QNNExecutionProvider", None),
    ],
)
def test_what_the_provider_takes(nodes: dict[str, int], provider: str, taken: float | None) -> None:
    measured = Benchmark(
        artifact=Artifact("x", ""),
        runtime=replace(CPU, provider=provider),
        machine=this_machine(),
        protocol=Protocol(),
        began=0,
        seconds=0,
        graphs=(GraphResult("", nodes=nodes),),
    )
    found = with_session(joined([("", FACTS)]), measured)
    assert found.taken == taken
    assert found.assigned == nodes


def test_a_trace_tells_the_slowest_operators() -> None:
    types = (TypeTotal("Conv", 6, 80.0, 80.0), TypeTotal("Relu", 4, 20.0, 20.0))
    good = Trace(Metadata(), TraceStatus.OK, statistics=Statistics(types=types))
    found = with_trace(joined([("", FACTS)]), good)
    assert found.top == (TopOperator("Conv", 6, 80.0), TopOperator("Relu", 4, 20.0))
    assert found.lines()[-1] == "time of the baseline: Conv 80 %, Relu 20 %"
    bad = with_trace(found, Trace(Metadata(), TraceStatus.NOT_RUN, error="it crashed"))
    assert bad.untraced == "it crashed"


def test_it_survives_the_state() -> None:
    found = with_trace(joined([("", FACTS)]), Trace(Metadata(), TraceStatus.NO_DATA))
    assert from_json(to_json(found), Insight) == found
