"""Profiles made by hand, row by row as QNN and ONNX Runtime write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEADER = (
    "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier\n"
)
Operators = Mapping[str, float]
"""Cycles by name as QNN writes it: `/conv/Conv:OpId_24`."""


@dataclass(frozen=True)
class Execution:
    """One pass through a graph."""

    cycles: float
    time: float
    operators: Operators = field(default_factory=dict)
    threads: int = 4

    def rows(self) -> list[str]:
        return [
            f"0,BACKEND,{self.threads},COUNT,BACKEND,ROOT,Number of HVX threads used\n",
            f"0,BACKEND,{self.cycles},CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)\n",
            *(
                f"0,NODE,{cycles},CYCLES,BACKEND,SUB-EVENT,{name} (cycles)\n"
                for name, cycles in self.operators.items()
            ),
            f"0,BACKEND,{self.time},US,BACKEND,ROOT,Accelerator (execute) time\n",
            f"0,EXECUTE,{self.time + 90},US,BACKEND,ROOT,QNN (execute) time\n",
        ]


def qnn_csv(path: Path, executions: Iterable[Execution]) -> Path:
    rows = [
        HEADER,
        "0,FINALIZE,15923,US,BACKEND,ROOT,QNN (finalize) time\n",
        "0,UNKNOWN,276,US,BACKEND,SUB-EVENT,Graph Preparation Initializing\n",
    ]
    rows += [row for one in executions for row in one.rows()]
    path.write_bytes("".join(rows).encode())  # with the same ends of lines everywhere
    return path


TWO = (
    Execution(100, 10, {"/a/Conv_token_1:OpId_7": 50}),
    Execution(1000, 200, {"/a/Conv_token_1:OpId_7": 100}),
)
"""Two executions whose clocks differ: 5 and 20 microseconds."""

RESNET_CYCLES = (3755250, 3422548, 3391653, 3357073, 3351217)
RESNET_TIMES = (1359, 982, 970, 949, 945)
RESNET_CONV = (671293, 657509, 655057, 654248, 657767)


def resnet() -> list[Execution]:
    """Five executions of 79 operators, of which the embedder's convolution is the largest."""
    others = [
        f"/resnet/stages.{n // 20}/layers.{n % 20}/Conv_token_{n}:OpId_{n + 30}" for n in range(77)
    ]
    return [
        Execution(
            cycles,
            time,
            {
                "Input OpId_2": 2000,
                "/resnet/embedder/embedder/convolution/Conv_token_1_2:OpId_24": conv,
                **dict.fromkeys(others, 30000),
            },
        )
        for cycles, time, conv in zip(RESNET_CYCLES, RESNET_TIMES, RESNET_CONV, strict=True)
    ]


def qhas(path: Path, operators: Sequence[Mapping[str, Any]], **whole: Any) -> Path:
    told = {
        "time_us": 1343, "graph_execute_us": 1132, "inf_per_s": 744.6,
        "timeline_cycles": 1582526, "percent_utilization": 99.5915,
        "total_dram_read": 26000000, "total_dram_write": 1000000,
        "total_vtcm_read": 52000000, "total_vtcm_write": 43000000, "peak_vtcm_alloc": 6619136,
        "qnn_nodes": 86, "htp_nodes": 1481, "unique_qnn_ops": 9, "unique_htp_ops": 41,
        **whole,
    }  # fmt: skip
    data = {
        "htp_overall_summary": {"data": [told]},
        "qnn_op_instances_nodes": {"data": list(operators)},
        "a_table_of_a_newer_viewer": {"data": []},
    }
    path.write_text(json.dumps({"data": data}), "utf-8")
    return path


CONV2D = {
    "qnn_op": "/resnet/embedder/embedder/convolution/Conv_token_1_2",
    "qnn_op_type": "Conv2d",
    "cycles": 671293,
    "percent_active_cycles": 17.8716,
    "num_htp_ops": 60,
    "num_dominant_path_cycles_htp_0": 141990,
    "dram_read": 1407,
    "dram_write": 0,
    "vtcm_read": 1000000,
    "vtcm_write": 802816,
}
"""569.688 microseconds, 120.499 of them on the dominant path, and a VTCM hit ratio of 0.998595."""


def ort_event(name: str, start: int, time: int, **args: Any) -> str:
    kind = "Node" if args else "Session"
    return (
        f'{{"cat" : "{kind}","pid" :1,"tid" :1,"dur" :{time},"ts" :{start},"ph" : "X",'
        f'"name" :"{name}","args" : {json.dumps(args)}}},\n'
    )


def ort_node(index: int, name: str, kind: str, start: int, time: int, **more: Any) -> str:
    return ort_event(
        f"{name}_kernel_time", start, time, node_index=str(index), op_name=kind,
        **{"provider": "CPUExecutionProvider", **more},
    )  # fmt: skip


def ort_profile(path: Path, events: Iterable[str]) -> Path:
    first = ort_event("session_initialization", 0, 900)
    path.write_text("".join(["[\n", first, *events]).rstrip(",\n") + "\n]\n", "utf-8")
    return path
