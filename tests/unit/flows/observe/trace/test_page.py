"""The page of a trace holds everything, and takes nothing that a model says for markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from flows.trace.traces import MOST_SAMPLES, render, write
from workers.measure.trace.result import Trace

SAMPLE = Path(__file__).parents[5] / "docs" / "samples" / "trace.json"


def sample() -> Trace:
    return Trace.from_json(json.loads(SAMPLE.read_text("utf-8")))


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    read: dict[str, object] = json.loads(found[1])
    return read


def test_a_page_holds_its_trace_and_loads_nothing(tmp_path: Path) -> None:
    write(sample(), tmp_path / "trace.html")
    page = (tmp_path / "trace.html").read_text("utf-8")
    assert data_of(page)["trace"]["operators"][0]["name"] == "pool"  # type: ignore[index]
    assert data_of(page)["difference"] is None
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "http://" not in page
    assert "https://" not in page


def test_an_emulated_trace_says_so_without_any_script() -> None:
    page = render(sample())
    assert "<title>trace of convolution.onnx (emulated)</title>" in page
    assert "8 operators on QNNExecutionProvider npu (emulated): ok" in page


def test_names_of_a_model_are_never_markup() -> None:
    evil = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
    one = sample()
    bad = replace(
        one,
        metadata=replace(one.metadata, model=evil),
        operators=(replace(one.operators[0], name=evil, op_path=evil, op_type=evil),),
        error=evil,
    )
    page = render(bad, against=bad)
    assert evil not in page
    assert page.count("<script") == 2
    assert "<img" not in page
    assert data_of(page)["trace"]["metadata"]["model"] == evil  # type: ignore[index]


def test_a_page_against_another_trace_holds_the_difference() -> None:
    one = sample()
    faster = replace(one, operators=one.operators[1:], metadata=replace(one.metadata, model="b"))
    found = data_of(render(faster, one))["difference"]
    assert (found["before"], found["after"]) == (one.metadata.model, "b")  # type: ignore[index]
    assert found["groups"][0]["what"] == "only before"  # type: ignore[index]
    assert found["delta_us"] < 0  # type: ignore[index]


def test_a_large_trace_keeps_a_page_small() -> None:
    one = sample()
    samples = tuple(float(at) for at in range(1000))
    many = tuple(
        replace(one.operators[0], name=f"/layer.{at}/MatMul", samples_us=samples)
        for at in range(1000)
    )
    page = render(replace(one, operators=many))
    assert len(page) < 1_500_000
    assert page.count('"samples_us":[') == 1000
    first = data_of(page)["trace"]["operators"][0]["samples_us"]  # type: ignore[index]
    assert len(first) == MOST_SAMPLES + 1, "one more tells the page that there are others"


def test_a_failed_trace_has_a_page_too() -> None:
    failed = Trace.from_json(
        {"metadata": {"model": "m"}, "status": "not_run", "error": "CRASH: gone"}
    )
    assert "0 operators" in render(failed)
