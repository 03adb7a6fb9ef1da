"""What crosses the pipe to an engine arrives as it was sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workers.engine import BuildPlan, Request, StageJob, StageReport, StageSpec, from_json, to_json

REQUEST = Request(
    {"id": "a/b", "source": {"config": {"layers": [1]}}}, {"label": "x"}, {"opset": 1}
)


@pytest.mark.parametrize(
    "value",
    [
        REQUEST,
        BuildPlan(
            {"digest": "0"},
            (StageSpec("export", {"deep": {"list": [1, None]}}, ("source",), ("torch",), True),),
            ("a notice",),
            7,
        ),
        StageReport({"components": []}, {"seconds": 1.5}),
    ],
)
def test_a_value_arrives_as_it_was_sent(value: object) -> None:
    wire = json.loads(json.dumps(to_json(value)))
    assert from_json(wire, type(value)) == value


def test_a_job_arrives_without_its_progress() -> None:
    job = StageJob("export", {}, REQUEST, {"source": Path("in")}, Path("out"), progress=print)
    wire = to_json(job)
    assert "progress" not in json.loads(json.dumps(wire))
    arrived = from_json(wire, StageJob)
    assert (arrived.inputs, arrived.out, arrived.request) == (job.inputs, job.out, REQUEST)


def test_a_field_of_another_version_is_an_error() -> None:
    with pytest.raises((TypeError, KeyError)):
        from_json({**to_json(REQUEST), "colour": "green"}, Request)
