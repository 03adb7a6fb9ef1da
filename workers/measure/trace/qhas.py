"""Reads the summary that QNN's profile viewer makes of an optrace (`QHAS`, a JSON file).

It describes one execution of one part of the graph. The viewer adds tables from one release to the
next; only what is read here has to be there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from workers.measure.trace.errors import NoData, Unreadable
from workers.measure.trace.operators import Series
from workers.measure.trace.qnn_csv import without_token
from workers.measure.trace.readings import Readings, regular_size
from workers.measure.trace.result import Summary

LARGEST = 256 * 1024**2
_SUMMARY = {
    "inference_us": "time_us",
    "execute_us": "graph_execute_us",
    "inf_per_s": "inf_per_s",
    "timeline_cycles": "timeline_cycles",
    "utilization_pct": "percent_utilization",
    "dram_read_bytes": "total_dram_read",
    "dram_write_bytes": "total_dram_write",
    "vtcm_read_bytes": "total_vtcm_read",
    "vtcm_write_bytes": "total_vtcm_write",
    "vtcm_peak_bytes": "peak_vtcm_alloc",
    "qnn_nodes": "qnn_nodes",
    "htp_nodes": "htp_nodes",
    "unique_qnn_ops": "unique_qnn_ops",
    "unique_htp_ops": "unique_htp_ops",
}
"""Our key, and QHAS's."""
_WHOLE = {key for key in _SUMMARY if key.endswith(("_bytes", "_nodes", "_ops"))}
_NEEDED = ("time_us", "timeline_cycles")
_MEMORY = {
    "dram_read_bytes": "dram_read",
    "dram_write_bytes": "dram_write",
    "vtcm_read_bytes": "vtcm_read",
    "vtcm_write_bytes": "vtcm_write",
    "num_htp_ops": "num_htp_ops",
}


def read_qhas(path: Path) -> Readings:
    """The one execution that it describes. Raises `Unreadable` or `NoData`."""
    regular_size(path, LARGEST)
    try:
        told = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"{path.name} is no JSON: {error}") from None
    data = _table(told, "data", path)
    rows = _rows(data, "htp_overall_summary", path)
    if not rows:
        raise Unreadable(f"{path.name}: htp_overall_summary is empty")
    whole = rows[0]
    for key in _NEEDED:
        if key not in whole:
            raise Unreadable(f"{path.name}: htp_overall_summary has no {key}")
    time, cycles = (_number(whole, key, path) for key in _NEEDED)
    ratio = time / cycles if cycles else 0.0
    operators = _rows(data, "qnn_op_instances_nodes", path)
    if not operators:
        raise NoData(f"{path.name} holds no operators")
    return Readings(
        series=tuple(
            _series(one, place, ratio, cycles, path) for place, one in enumerate(operators)
        ),
        summary=_summary(whole, path),
        samples=1,
        inference=(time,),
        partitions=1,
    )


def _summary(whole: Mapping[str, Any], path: Path) -> Summary:
    found: dict[str, Any] = {
        ours: _number(whole, theirs, path) for ours, theirs in _SUMMARY.items() if theirs in whole
    }
    return Summary(**{key: int(one) if key in _WHOLE else one for key, one in found.items()})


def _series(row: Mapping[str, Any], place: int, ratio: float, whole: float, path: Path) -> Series:
    for key in ("qnn_op", "cycles"):
        if key not in row:
            raise Unreadable(f"{path.name}: operator {place + 1} has no {key}")
    cycles = _number(row, "cycles", path)
    share = cycles / whole if whole else 0.0
    if "percent_active_cycles" in row:
        share = _number(row, "percent_active_cycles", path) / 100
    name, kind = without_token(str(row["qnn_op"])), str(row.get("qnn_op_type") or "")
    return Series(
        path=name,
        op_id=_id(row, place),
        order=place,
        values=[cycles * ratio],
        shares=share,
        facts={"op_type": kind or None, **_memory(row, ratio, path)},
    )


def _id(row: Mapping[str, Any], place: int) -> int:
    given = row.get("qnn_op_id")
    return given if isinstance(given, int) else place


def _memory(row: Mapping[str, Any], ratio: float, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        ours: int(_number(row, theirs, path)) for ours, theirs in _MEMORY.items() if theirs in row
    }
    read = found.get("vtcm_read_bytes", 0) + found.get("dram_read_bytes", 0)
    if read:
        found["vtcm_hit_ratio"] = found.get("vtcm_read_bytes", 0) / read
    if row.get("num_dominant_path_cycles_htp_0"):
        dominant = _number(row, "num_dominant_path_cycles_htp_0", path)
        found["dominant_path_us"] = dominant * ratio
    return found


def _table(value: Any, key: str, path: Path) -> Mapping[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise Unreadable(f"{path.name} is no summary of QNN's viewer: it has no table '{key}'")
    return found


def _rows(data: Mapping[str, Any], key: str, path: Path) -> list[Mapping[str, Any]]:
    rows = _table(data, key, path).get("data")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unreadable(f"{path.name}: {key} has no list of rows")
    return rows


def _number(row: Mapping[str, Any], key: str, path: Path) -> float:
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise Unreadable(f"{path.name}: {key} is {str(value)[:40]!r}, not a number")
    if value < 0:
        raise Unreadable(f"{path.name}: {key} is {value}")
    return float(value)
