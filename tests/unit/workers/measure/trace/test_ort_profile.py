"""Reading the profile of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracing.profiles import ort_event, ort_node, ort_profile
from workers.measure.trace.errors import NoData, Unreadable
from workers.measure.trace.ort_profile import read_profile
from workers.measure.trace.readings import Window


def run(start: int, conv: int, relu: int) -> list[str]:
    """A run of two operators with 5 microseconds around them."""
    shape = [{"float": [1, 16, 32, 32]}]
    return [
        ort_node(5, "c_nchwc", "Conv", start, conv, output_type_shape=shape),
        ort_node(6, "relu", "Relu", start + conv, relu),
        ort_event("SequentialExecutor::Execute", start, conv + relu + 2),
        ort_event("model_run", start, conv + relu + 5),
    ]


def test_runs_and_their_operators(tmp_path: Path) -> None:
    events = [*run(1000, 900, 95), *run(3000, 60, 35), *run(4000, 30, 15)]
    found = read_profile(ort_profile(tmp_path / "p.json", events), Window(1, 2))
    conv, relu = (one.operator() for one in found.series)
    assert (conv.op_path, conv.op_id, conv.op_type) == ("c_nchwc", 5, "Conv")
    assert conv.provider == "CPUExecutionProvider"
    assert conv.data_type == "float"
    assert list(conv.dims or ()) == [1, 16, 32, 32]
    assert list(conv.samples_us) == [60, 30]
    assert conv.percent_of_total == pytest.approx(60)
    assert list(relu.samples_us) == [35, 15]
    assert list(found.inference) == [100, 50]
    assert found.summary.inference_us == 75


def test_the_operators_of_a_loop_are_in_its_time(tmp_path: Path) -> None:
    events = [
        ort_node(1, "before", "Add", 100, 10),
        ort_node(0, "inner", "Mul", 115, 5),
        ort_node(0, "inner", "Mul", 121, 5),
        ort_node(2, "loop", "Loop", 112, 20),
        ort_event("model_run", 100, 40),
    ]
    found = read_profile(ort_profile(tmp_path / "p.json", events), Window(0, 1))
    assert [(one.path, one.values) for one in found.series] == [("before", [10]), ("loop", [20])]


def test_names_with_quotes(tmp_path: Path) -> None:
    events = [ort_node(1, 'a "b" c', "Add", 1, 2), ort_event("model_run", 1, 4)]
    found = read_profile(ort_profile(tmp_path / "p.json", events), Window(0, 1))
    assert found.series[0].path == 'a "b" c'


def test_other_counts_than_runs_are_refused(tmp_path: Path) -> None:
    path = ort_profile(tmp_path / "p.json", run(1, 2, 3) * 3)
    with pytest.raises(Unreadable, match="holds 3 runs"):
        read_profile(path, Window(1, 3))


def test_damaged_profiles(tmp_path: Path) -> None:
    path = ort_profile(tmp_path / "p.json", run(1, 2, 3) * 3)
    content = path.read_text("utf-8")
    for cut in (content[:-2], content[:-40], content[: len(content) // 2], content + "rest\n"):
        path.write_text(cut, "utf-8")
        with pytest.raises(Unreadable):
            read_profile(path, Window(0, 3))


def test_nothing_about_operators(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", ort_profile(tmp_path / "p.json", [])):
        with pytest.raises(NoData):
            read_profile(path, Window(0, 1))
    (tmp_path / "p.json").write_text("", "utf-8")
    with pytest.raises(NoData):
        read_profile(tmp_path / "p.json", Window(0, 1))
