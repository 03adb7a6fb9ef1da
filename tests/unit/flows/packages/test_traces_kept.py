"""Traces that are kept: read again, linked from reports, published beside their package."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import main
from flows.measure.results import keep as keep_rows
from flows.measure.results import trace_rows
from flows.packages.run_records import RECORD
from flows.settings.resolution import resolve
from flows.settings.workspace import Workspace
from flows.trace.traces import keep, kept_trace, publish_trace
from matrix.errors import UsageError
from state.records import MeasurementKind
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from workers.measure.trace.result import Trace, TraceStatus

SAMPLE = Path(__file__).parents[4] / "docs" / "samples" / "trace.json"


def sample(**metadata: Any) -> Trace:
    one = Trace.from_json(json.loads(SAMPLE.read_text("utf-8")))
    return replace(one, artifacts={}, metadata=replace(one.metadata, **metadata))


def test_a_kept_trace_is_read_from_its_file_or_folder(tmp_path: Path) -> None:
    one = keep(sample(), {}, tmp_path / "kept")
    for place in (tmp_path / "kept", tmp_path / "kept" / "trace.json"):
        assert kept_trace(place) == one
    assert kept_trace(tmp_path) is None
    assert kept_trace(tmp_path / "model.onnx") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"metadata": 1}', "9" * 5000, "[" * 9999])
def test_rubbish_is_one_line(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    assert main(["trace", "bad.json"]) == 2
    err = capsys.readouterr().err
    assert "is not a trace" in err
    assert err.count("\n") == 1


def test_what_is_named_first_comes_after_what_it_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    whole = sample(model="whole.onnx")
    about = replace(whole.metadata, model="third.onnx")
    third = whole.operators[: len(whole.operators) // 3]
    keep(whole, {}, tmp_path / "old")
    keep(replace(whole, metadata=about, operators=third), {}, tmp_path / "new")
    words = ["trace", "new", "--against", "old", "--top-k", "1"]
    assert main([*words, "--html", "page.html"]) == 0
    told = capsys.readouterr()
    assert "before: whole.onnx; after: third.onnx" in told.out
    assert "(-" in told.out, "two thirds less is less"
    assert "(only before)" in told.out
    assert "before (emulated)  after (emulated)  operator" in told.out
    assert "wrote" in told.err
    assert "whole.onnx" in (tmp_path / "page.html").read_text("utf-8")
    assert main([*words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["difference"]["before"] == found["against"]["metadata"]["model"] == "whole.onnx"
    assert found["difference"]["after"] == found["trace"]["metadata"]["model"] == "third.onnx"
    assert found["difference"]["delta_us"] < 0


def test_reports_link_to_the_pages_of_traces(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.sweep(make_plan(small_model(cells=1)))
    (cell,) = (one for one in harness.outcomes().values() if one.target != "export")
    settings, said = harness.settings(), list[str]()
    rows = trace_rows(sample(tree=cell.tree, model=cell.cell))
    keep_rows(settings, rows, "the trace", said.append)
    assert trace_rows(sample(tree="short")) == []
    failed = replace(sample(tree=cell.tree), status=TraceStatus.NO_DATA)
    assert trace_rows(failed) == []
    keep_rows(settings, [], "the trace", said.append)
    assert said == []
    (row,) = harness.state.measurements(kind=MeasurementKind.TRACE)
    assert (row.cell, row.emulated, row.protocol["iterations"]) == (cell.cell, True, 3)
    monkeypatch.chdir(harness.root)
    assert main(["report", "--home", str(harness.root), "-o", "r.html"]) == 0
    capsys.readouterr()
    page = (harness.root / "r.html").read_text("utf-8")
    assert f'"page":"r-traces/{row.id}.html"' in page
    assert '"on":"QNNExecutionProvider npu (emulated)"' in page
    trace = (harness.root / "r-traces" / f"{row.id}.html").read_text("utf-8")
    assert cell.cell in trace


def test_a_trace_is_published_once_beside_its_package(harness: SweepHarness) -> None:
    settings = resolve({"home": str(harness.root)}, {}, harness.root)
    feed = Workspace(settings).open_feed()
    feed.preflight([])
    harness.feed = feed
    harness.sweep(make_plan(small_model(cells=1)))
    (cell,) = (one for one in harness.outcomes().values() if one.target != "export")
    before = harness.versions()
    one = sample(tree=cell.tree)
    package, version = publish_trace(settings, cell.package, cell.version, one)
    assert package == "modelmill-traces"
    assert publish_trace(settings, cell.package, cell.version, one) == (package, version)
    after = harness.versions()
    assert {key: after[key] for key in before} == before, "the package has not changed"
    assert set(after) - set(before) == {(package, version)}
    dest = harness.root / "got"
    feed.fetch(package, version, dest)
    record = json.loads((dest / RECORD).read_text("utf-8"))
    assert record["of"] == {
        "package": cell.package, "version": cell.version, "tree": cell.tree
    }  # fmt: skip
    assert record["on"]["emulated"] is True
    assert kept_trace(dest) == one
    with pytest.raises(UsageError, match="is not what was traced"):
        publish_trace(settings, cell.package, cell.version, sample(tree="0" * 64))
    with pytest.raises(UsageError, match="is not what was traced"):
        publish_trace(settings, cell.package, "0.0.0-none", one)
