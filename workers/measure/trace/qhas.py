"""Reads the summary that QNN's profile viewer makes of an optrace (`QHAS`, a JSON file).

It describes one execution of one part of the graph. The viewer adds tables from one release to the
next; only what is read here has to be there.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct, field, json, structs

from workers.measure.trace.operators import NoData, Readings, Series, Unreadable, regular_size
from workers.measure.trace.qnn_csv import without_token
from workers.measure.trace.result import Summary

LARGEST = 256 * 1024**2
T = TypeVar("T")
Count = Annotated[float, Meta(ge=0)]
MaybeCount = Count | None


class _Whole(Struct):
    """The whole execution, under our names."""

    timeline_cycles: Count
    inference_us: Count = field(name="time_us")
    execute_us: MaybeCount = field(default=None, name="graph_execute_us")
    inf_per_s: MaybeCount = None
    utilization_pct: MaybeCount = field(default=None, name="percent_utilization")
    dram_read_bytes: MaybeCount = field(default=None, name="total_dram_read")
    dram_write_bytes: MaybeCount = field(default=None, name="total_dram_write")
    vtcm_read_bytes: MaybeCount = field(default=None, name="total_vtcm_read")
    vtcm_write_bytes: MaybeCount = field(default=None, name="total_vtcm_write")
    vtcm_peak_bytes: MaybeCount = field(default=None, name="peak_vtcm_alloc")
    qnn_nodes: MaybeCount = None
    htp_nodes: MaybeCount = None
    unique_qnn_ops: MaybeCount = None
    unique_htp_ops: MaybeCount = None


class _Memory(Struct):
    """What an operator moves, under our names."""

    dram_read_bytes: MaybeCount = field(default=None, name="dram_read")
    dram_write_bytes: MaybeCount = field(default=None, name="dram_write")
    vtcm_read_bytes: MaybeCount = field(default=None, name="vtcm_read")
    vtcm_write_bytes: MaybeCount = field(default=None, name="vtcm_write")
    num_htp_ops: MaybeCount = None


class _Operator(_Memory, kw_only=True):
    qnn_op: str
    cycles: Count
    qnn_op_type: str | None = None
    qnn_op_id: Any = None
    percent_active_cycles: MaybeCount = None
    num_dominant_path_cycles_htp_0: MaybeCount = None


class _Table(Struct, Generic[T]):
    data: list[T]


class _Data(Struct):
    htp_overall_summary: _Table[_Whole]
    qnn_op_instances_nodes: _Table[_Operator]


class _Document(Struct):
    data: _Data


def read_qhas(path: Path) -> Readings:
    """The one execution that it describes. Raises `Unreadable` or `NoData`."""
    regular_size(path, LARGEST)
    try:
        text = path.read_bytes().removeprefix(BOM_UTF8)
        data = json.decode(text, type=_Document).data
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Unreadable(f"{path.name} is not a summary of QNN's viewer: {error}") from None
    if not data.htp_overall_summary.data:
        raise Unreadable(f"{path.name}: htp_overall_summary is empty")
    if not data.qnn_op_instances_nodes.data:
        raise NoData(f"{path.name} holds no operators")
    whole = data.htp_overall_summary.data[0]
    return Readings(
        series=tuple(
            _series(one, place, whole) for place, one in enumerate(data.qnn_op_instances_nodes.data)
        ),
        summary=Summary(**_known(structs.asdict(whole))),
        samples=1,
        inference=(whole.inference_us,),
        partitions=1,
    )


def _known(found: dict[str, Any]) -> dict[str, Any]:
    """The values that are there; counts as whole numbers."""
    whole = ("_bytes", "_nodes", "_ops")
    return {
        key: int(value) if key.endswith(whole) else value
        for key, value in found.items()
        if value is not None
    }


def _series(row: _Operator, place: int, whole: _Whole) -> Series:
    ratio = whole.inference_us / whole.timeline_cycles if whole.timeline_cycles else 0.0
    share = row.cycles / whole.timeline_cycles if whole.timeline_cycles else 0.0
    if row.percent_active_cycles is not None:
        share = row.percent_active_cycles / 100
    facts = _known({name: getattr(row, name) for name in _Memory.__struct_fields__})
    read = facts.get("vtcm_read_bytes", 0) + facts.get("dram_read_bytes", 0)
    if read:
        facts["vtcm_hit_ratio"] = facts.get("vtcm_read_bytes", 0) / read
    if row.num_dominant_path_cycles_htp_0:
        facts["dominant_path_us"] = row.num_dominant_path_cycles_htp_0 * ratio
    return Series(
        path=without_token(row.qnn_op),
        op_id=row.qnn_op_id if isinstance(row.qnn_op_id, int) else place,
        order=place,
        values=[row.cycles * ratio],
        shares=share,
        facts={"op_type": row.qnn_op_type or None, **facts},
    )
