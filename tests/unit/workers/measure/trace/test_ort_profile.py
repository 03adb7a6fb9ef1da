"""Reading the profile of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracing.profiles import ort_event, ort_node, ort_profile
from workers.measure.trace import ort_profile as ort_profile_module
from workers.measure.trace.operators import NoData, Unreadable, Window
from workers.measure.trace.ort_profile import LONGEST_LINE, read_profile


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


def test_lines_as_windows_ends_them(tmp_path: Path) -> None:
    path = ort_profile(tmp_path / "p.json", run(1, 2, 3) * 2)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(read_profile(path, Window(0, 2)).inference) == 2


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


@pytest.mark.parametrize(
    "text",
    [
        '"dur" :-5',
        '"dur" :1e999',
        f'"dur" :{"9" * 5000}',
        '"dur" :null',
        '"dur" :"5"',
        '"dur" :5,"\udcff',
        f'"dur" :{"[" * 5000}',
    ],
)
def test_a_time_that_is_none_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    path = ort_profile(tmp_path / "p.json", run(1, 2, 3))
    whole = path.read_text("utf-8").replace('"dur" :2', text)
    path.write_bytes(whole.encode("utf-8", "surrogateescape"))
    with pytest.raises(Unreadable, match=r"p\.json:3: this is not an event"):
        read_profile(path, Window(0, 1))


def test_an_event_that_does_not_end(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(b"[\n" + b"x" * (3 * LONGEST_LINE))
    with pytest.raises(Unreadable, match="2: the event does not end"):
        read_profile(path, Window(0, 1))


def test_a_profile_that_grows_is_read_to_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ort_profile(tmp_path / "p.json", run(1, 2, 3))
    size = path.stat().st_size
    with path.open("a", encoding="utf-8") as stream:
        stream.write("rubbish\n" * 1000)
    monkeypatch.setattr(ort_profile_module, "regular_size", lambda path: size)
    assert len(read_profile(path, Window(0, 1)).inference) == 1


def test_nothing_about_operators(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", ort_profile(tmp_path / "p.json", [])):
        with pytest.raises(NoData):
            read_profile(path, Window(0, 1))
    (tmp_path / "p.json").write_text("", "utf-8")
    with pytest.raises(NoData):
        read_profile(tmp_path / "p.json", Window(0, 1))
