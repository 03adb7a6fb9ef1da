"""Reading QNN's profiling CSV: its numbers, the iterations that it must hold, and its damages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tracing.profiles import HEADER, TWO, Execution, qnn_csv, resnet
from workers.measure.trace.operators import NoData, Readings, Unreadable, Window, by_cost
from workers.measure.trace.qnn_csv import LONGEST_LINE, read_csv
from workers.measure.trace.result import Operator


def operators(found: Readings) -> tuple[Operator, ...]:
    return by_cost([one.operator() for one in found.series])


def test_each_execution_has_its_own_ratio(tmp_path: Path) -> None:
    found = read_csv(qnn_csv(tmp_path / "p.csv", TWO))
    (one,) = operators(found)
    assert one.samples_us == pytest.approx((5, 20))
    assert one.avg_us == pytest.approx(12.5)
    assert one.percent_of_total == pytest.approx(30)
    assert (one.op_id, one.op_path) == (7, "/a/Conv")
    assert found.inference == (10, 200)


def test_a_network_of_79_operators(tmp_path: Path) -> None:
    path = qnn_csv(tmp_path / "resnet.csv", resnet())
    found = read_csv(path)
    assert (found.samples, len(found.series), found.partitions) == (5, 79, 1)
    first = operators(found)[0]
    assert (first.op_id, first.sample_count) == (24, 5)
    assert first.samples_us == pytest.approx((242.94, 188.65, 187.34, 184.95, 185.48), abs=0.01)
    assert first.avg_us == pytest.approx(197.872, abs=0.001)
    assert first.percent_of_total == pytest.approx(19.103, abs=0.001)
    assert first.p90_us == pytest.approx(221.223, abs=0.001)
    assert found.summary.accelerator_cycles == pytest.approx(3455548.2)
    assert found.summary.accelerator_us == pytest.approx(1041.0)
    assert found.summary.execute_us == pytest.approx(1131.0)
    assert found.summary.hvx_threads == 4


def test_runs_to_warm_up_do_not_count(tmp_path: Path) -> None:
    path = qnn_csv(tmp_path / "p.csv", [*TWO, *TWO])
    found = read_csv(path, Window(warmup=3, iterations=1))
    (one,) = operators(found)
    assert one.samples_us == pytest.approx((20,))
    assert found.inference == (200,)


@pytest.mark.parametrize("window", [Window(0, 1), Window(1, 2), Window(0, 3)])
def test_other_counts_than_runs_are_refused(tmp_path: Path, window: Window) -> None:
    with pytest.raises(Unreadable, match="holds 2 executions"):
        read_csv(qnn_csv(tmp_path / "p.csv", TWO), window)


def test_a_graph_in_two_parts_is_one_sample(tmp_path: Path) -> None:
    parts = [
        Execution(100, 10, {"/a:OpId_1": 40, "/b:OpId_2": 60}),
        Execution(200, 30, {"/c:OpId_1": 200}),
    ]
    path = qnn_csv(tmp_path / "p.csv", parts * 3)
    for found in (read_csv(path, Window(1, 2), partitions=2), read_csv(path)):
        rows = {one.op_path: one for one in operators(found)}
        assert rows.keys() == {"/a", "/b", "/c"}
        assert found.partitions == 2
        assert (rows["/a"].partition, rows["/c"].partition) == (0, 1)
        assert rows["/a"].avg_us == pytest.approx(4)
        assert rows["/c"].percent_of_total == pytest.approx(75)
        assert set(found.inference) == {40}


def test_zero_cycles_do_not_divide(tmp_path: Path) -> None:
    (one,) = operators(read_csv(qnn_csv(tmp_path / "p.csv", [Execution(0, 10, {"a:OpId_1": 5})])))
    assert (one.avg_us, one.percent_of_total) == (0, 0)
    (one,) = operators(read_csv(qnn_csv(tmp_path / "q.csv", [Execution(9, 0, {"a:OpId_1": 5})])))
    assert (one.avg_us, one.percent_of_total) == (0, 0)


def test_operators_of_one_name_stay_apart(tmp_path: Path) -> None:
    row = {"Transpose:OpId_17": 10, "Transpose_token_8:OpId_37": 30}
    found = operators(read_csv(qnn_csv(tmp_path / "p.csv", [Execution(100, 10, row)])))
    assert [(one.op_path, one.op_id) for one in found] == [("Transpose", 37), ("Transpose", 17)]


def test_an_operator_counts_where_it_appears(tmp_path: Path) -> None:
    two = [
        Execution(100, 10, {"a:OpId_1": 50}),
        Execution(100, 10, {"a:OpId_1": 70, "b:OpId_2": 30}),
    ]
    rows = {one.op_path: one for one in operators(read_csv(qnn_csv(tmp_path / "p.csv", two)))}
    assert rows["b"].sample_count == 1
    assert rows["b"].avg_us == pytest.approx(3)


def test_executions_without_operators_do_not_count(tmp_path: Path) -> None:
    found = read_csv(qnn_csv(tmp_path / "p.csv", [Execution(50, 5), *TWO, Execution(7, 1)]))
    assert found.inference == (10, 200)


def test_names_of_any_shape(tmp_path: Path) -> None:
    row = {
        "soft max:OpId_1": 1, "a, b:OpId_2": 2, "Input OpId_3": 3, "größe:OpId_4": 4,
        "OpId_9:OpId_5": 5, "no operator at all": 6, ":OpId_6": 0, " a blank :OpId_7": 9,
    }  # fmt: skip
    found = operators(read_csv(qnn_csv(tmp_path / "p.csv", [Execution(100, 10, row)])))
    assert [one.op_path for one in found] == [
        " a blank ",
        "OpId_9",
        "größe",
        "Input",
        "a, b",
        "soft max",
        "OpId_6",
    ]


def test_a_byte_order_mark_and_quotes_are_fine(tmp_path: Path) -> None:
    path = qnn_csv(tmp_path / "p.csv", TWO)
    text = path.read_text("utf-8").replace(
        "/a/Conv_token_1:OpId_7 (cycles)", '"/a/Conv:OpId_7 (cycles)"'
    )
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (one,) = operators(read_csv(path))
    assert one.op_path == "/a/Conv"
    assert one.avg_us == pytest.approx(12.5)


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_profile_that_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = qnn_csv(tmp_path / "p.csv", resnet())
    content = path.read_bytes()
    last = content.rindex(b"Accelerator (execute) time\n")
    path.write_bytes(content[: last - cut * 61])
    with pytest.raises(Unreadable):
        read_csv(path, Window(1, 4))


def test_a_profile_without_its_header(tmp_path: Path) -> None:
    path = qnn_csv(tmp_path / "p.csv", TWO)
    path.write_text(path.read_text("utf-8").removeprefix(HEADER), "utf-8")
    with pytest.raises(Unreadable, match="does not begin with the columns"):
        read_csv(path)
    path.write_text(HEADER.replace(",Event Level", "") + "1,2,3\n", "utf-8")
    with pytest.raises(Unreadable, match="lacks Event Level"):
        read_csv(path)


@pytest.mark.parametrize("value", ["", "many", "-3", "nan", "inf", "1e999"])
def test_what_is_no_count(tmp_path: Path, value: str) -> None:
    path = qnn_csv(tmp_path / "p.csv", TWO)
    path.write_text(path.read_text("utf-8").replace(",50,CYCLES", f",{value},CYCLES"), "utf-8")
    with pytest.raises(Unreadable, match=r"p.csv:6: '.*' is not a count"):
        read_csv(path)


def test_decimals_are_counts(tmp_path: Path) -> None:
    found = read_csv(qnn_csv(tmp_path / "p.csv", [Execution(100.0, 10.5, {"a:OpId_1": 50.0})]))
    assert operators(found)[0].avg_us == pytest.approx(5.25)


def test_what_holds_nothing(tmp_path: Path) -> None:
    for text in ("", HEADER):
        (tmp_path / "p.csv").write_text(text, "utf-8")
        with pytest.raises(NoData):
            read_csv(tmp_path / "p.csv")
    for path in (tmp_path / "missing.csv", tmp_path):
        with pytest.raises(NoData):
            read_csv(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.csv")
    with pytest.raises(NoData, match="is not a file"):
        read_csv(tmp_path / "p.csv")


def test_a_row_without_end(tmp_path: Path) -> None:
    path = qnn_csv(tmp_path / "p.csv", TWO)
    with path.open("a", encoding="utf-8") as stream:
        stream.write("0," * LONGEST_LINE)
    with pytest.raises(Unreadable, match="does not end"):
        read_csv(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes(bytes(range(256)) * 100)
    with pytest.raises(Unreadable):
        read_csv(tmp_path / "p.csv")
