"""From what a monitor has seen to a status."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tracing.profiles import (
    TWO,
    Execution,
    ort_event,
    ort_node,
    ort_profile,
    qnn_csv,
)
from workers.measure.trace.interpret import Seen, interpret
from workers.measure.trace.operators import NoData, NoDetail, Readings, Unreadable, Window
from workers.measure.trace.result import FallbackReason, Metadata, TraceStatus
from workers.measure.trace.tracer import failed
from workers.measure.trace.viewer import Viewer, find_viewer


def seen(folder: Path, level: str = "basic", **told: Any) -> Seen:
    return Seen("qnn", level, folder, Window(0, 2), {"profile": "profile.csv", **told}, 1)


def detail(folder: Path, **told: Any) -> Readings:
    """At level detail, with all files that QNN writes and no SDK."""
    qnn_csv(folder / "profile.csv", TWO)
    for name in ("profile_qnn.log", "g_schematic.bin"):
        (folder / name).touch()

    files = {"log": "profile_qnn.log", "schematics": ["g_schematic.bin"]}
    return interpret(seen(folder, "detail", **{**files, **told}), lambda: find_viewer(None))


def unused() -> Viewer:
    raise AssertionError("nobody asked for detail")


def test_the_basic_level(tmp_path: Path) -> None:
    qnn_csv(tmp_path / "profile.csv", TWO)
    found = interpret(seen(tmp_path, log="profile_qnn.log"), unused)
    assert found.lacking is None
    assert found.samples == 2


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({}, FallbackReason.SDK_MISSING),
        ({"log": None}, FallbackReason.LOG_MISSING),
        ({"schematics": []}, FallbackReason.SCHEMATIC_MISSING),
        ({"schematics": ["a", "b"]}, FallbackReason.MULTIPLE_PARTITIONS),
    ],
)
def test_what_detail_needs(tmp_path: Path, told: dict[str, Any], reason: FallbackReason) -> None:
    found = detail(tmp_path, **told)
    assert found.lacking is not None
    assert found.lacking.reason is reason
    assert str(found.lacking)


def test_no_profile_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(NoData):
        interpret(seen(tmp_path, profile=None), unused)
    (tmp_path / "profile.csv").write_text("rubbish\n", "utf-8")
    with pytest.raises(Unreadable) as caught:
        interpret(seen(tmp_path), unused)
    made = failed(Metadata(), caught.value.status, str(caught.value), {"profile": "profile.csv"})
    assert (made.status, made.error) == (TraceStatus.PARSE_FAILED, str(caught.value))


def test_what_qnn_left_to_the_cpu_is_there_too(tmp_path: Path) -> None:
    qnn_csv(tmp_path / "profile.csv", [Execution(100, 60, {"a:OpId_1": 100})] * 2)
    run = [
        ort_node(9, "QNN_0", "QNN_0", 1, 70, provider="QNNExecutionProvider"),
        ort_node(3, "topk", "TopK", 71, 40),
        ort_event("model_run", 1, 120),
    ]
    ort_profile(tmp_path / "runs.json", run * 2)
    found = interpret(seen(tmp_path, runs="runs.json"), unused)
    rows = [one.operator() for one in found.series]
    assert [(one.op_path, one.provider, one.avg_us) for one in rows] == [
        ("a", "QNNExecutionProvider", 60), ("topk", "CPUExecutionProvider", 40),
    ]  # fmt: skip
    assert [one.percent_of_total for one in rows] == pytest.approx([50, 100 / 3])
    assert list(found.inference) == [120, 120]
    assert found.summary.inference_us == 120
    assert found.summary.accelerator_us == 60


def test_sources_without_a_detailed_level(tmp_path: Path) -> None:
    told = {"operators": [{"name": "a", "before": 1, "after": 5}]}
    found = interpret(Seen("openvino", "detail", tmp_path, Window(1, 2), told), unused)
    assert found.lacking is not None
    assert found.lacking.reason is FallbackReason.LEVEL_UNSUPPORTED
    with pytest.raises(NoData):
        interpret(Seen("onnxruntime", "basic", tmp_path, Window(1, 2), {"runs": None}), unused)


def test_the_viewer_of_an_sdk(tmp_path: Path) -> None:
    windows = sys.platform == "win32"
    name = "qnn-profile-viewer" + ".exe" * windows
    library = "QnnHtpOptraceProfilingReader.dll" if windows else (
        "libQnnHtpOptraceProfilingReader.so"
    )  # fmt: skip
    arch = "x86_64-windows-msvc" if windows else "x86_64-linux-clang"
    for root in ("", str(tmp_path / "nowhere"), str(tmp_path)):
        with pytest.raises(NoDetail, match="SDK"):
            find_viewer(root)
    for path in (tmp_path / "bin" / arch / name, tmp_path / "lib" / arch / library):
        path.parent.mkdir(parents=True)
        path.touch()
    found = find_viewer(str(tmp_path))
    assert Path(found.command[0]).name == name
    assert found.reader.name == library
