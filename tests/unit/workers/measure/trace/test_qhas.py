"""Reading the summary of QNN's viewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tracing.profiles import CONV2D, qhas
from workers.measure.trace.operators import NoData, Unreadable
from workers.measure.trace.qhas import read_qhas


def test_the_numbers_of_a_network(tmp_path: Path) -> None:
    found = read_qhas(qhas(tmp_path / "q.json", [CONV2D]))
    whole = found.summary
    assert (whole.inference_us, whole.execute_us, whole.timeline_cycles) == (1343, 1132, 1582526)
    assert whole.utilization_pct == pytest.approx(99.5915)
    assert (whole.vtcm_peak_bytes, whole.qnn_nodes, whole.htp_nodes) == (6619136, 86, 1481)
    one = found.series[0].operator()
    assert (one.op_path, one.op_type) == ("/resnet/embedder/embedder/convolution/Conv", "Conv2d")
    assert one.avg_us == pytest.approx(569.688, abs=0.001)
    assert one.percent_of_total == pytest.approx(17.8716)
    assert one.dominant_path_us == pytest.approx(120.499, abs=0.001)
    assert one.vtcm_hit_ratio == pytest.approx(0.998595, abs=1e-6)
    assert (one.dram_read_bytes, one.num_htp_ops) == (1407, 60)


def test_what_is_not_told_is_absent(tmp_path: Path) -> None:
    row = {"qnn_op": "x", "cycles": 0, "vtcm_read": 0, "dram_read": 0,
           "num_dominant_path_cycles_htp_0": 0}  # fmt: skip
    one = read_qhas(qhas(tmp_path / "q.json", [row])).series[0].operator()
    assert (one.avg_us, one.vtcm_hit_ratio, one.dominant_path_us) == (0, None, None)
    assert one.op_type is None


def test_zero_cycles_do_not_divide(tmp_path: Path) -> None:
    row = {"qnn_op": "x", "cycles": 5}
    one = read_qhas(qhas(tmp_path / "q.json", [row], timeline_cycles=0)).series[0].operator()
    assert (one.avg_us, one.percent_of_total) == (0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"data": 1}', '{"data": {}}',
        '{"data": {"htp_overall_summary": {"data": []}}}',
        '{"data": {"htp_overall_summary": {"data": [{"time_us": 1}]}}}',
        '{"data": {"htp_overall_summary": {"data": [{"time_us": 1, "timeline_cycles": 2}]}}}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_summary(tmp_path: Path, text: str) -> None:
    (tmp_path / "q.json").write_text(text, "utf-8")
    with pytest.raises(Unreadable, match=r"q\.json"):
        read_qhas(tmp_path / "q.json")


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"qnn_op": "x"}, r"required field `cycles` .*data\[0\]"),
        ({"cycles": 3}, "required field `qnn_op`"),
        ({"qnn_op": "x", "cycles": "3"}, r"got `str` .*data\[0\].cycles"),
        ({"qnn_op": "x", "cycles": -3}, r">= 0.* .*data\[0\].cycles"),
        ({"qnn_op": "x", "cycles": float("nan")}, "malformed"),
        ({"qnn_op": "x", "cycles": 3, "dram_read": True}, "got `bool` .*dram_read"),
    ],
)
def test_what_is_no_operator(tmp_path: Path, row: dict[str, Any], what: str) -> None:
    with pytest.raises(Unreadable, match=what):
        read_qhas(qhas(tmp_path / "q.json", [row]))


def test_no_operators(tmp_path: Path) -> None:
    with pytest.raises(NoData):
        read_qhas(qhas(tmp_path / "q.json", []))
    told = json.loads((tmp_path / "q.json").read_text("utf-8"))
    del told["data"]["qnn_op_instances_nodes"]
    (tmp_path / "q.json").write_text(json.dumps(told), "utf-8")
    with pytest.raises(Unreadable, match="qnn_op_instances_nodes"):
        read_qhas(tmp_path / "q.json")
