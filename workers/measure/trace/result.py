"""The result of a trace, one schema for all sources.

Keys are only ever added. What a source does not tell is absent, never zero. A reader takes keys
that it does not know as told by a newer version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from matrix import codec

SCHEMA = 1


class TraceStatus(StrEnum):
    """How much of a trace can be believed."""

    OK = "ok"
    NO_DATA = "no_data"
    """The source wrote nothing, or nothing about operators."""
    PARSE_FAILED = "parse_failed"
    """The source wrote something that cannot be read, or does not fit the iterations."""
    BASIC_FALLBACK = "basic_fallback"
    """Detail was asked for, and this is the basic level; `fallback_reason` says why."""
    NOT_RUN = "not_run"
    """The model did not run; `error` says why."""


class FallbackReason(StrEnum):
    """Why a trace of level detail has only basic data."""

    LEVEL_UNSUPPORTED = "level_unsupported"
    """The source has no more than the basic level."""
    SDK_MISSING = "sdk_missing"
    VIEWER_FAILED = "viewer_failed"
    VIEWER_TIMEOUT = "viewer_timeout"
    LOG_MISSING = "qnn_log_missing"
    SCHEMATIC_MISSING = "schematic_missing"
    QHAS_MISSING = "qhas_output_missing"
    QHAS_PARSE_FAILED = "qhas_parse_failed"
    MULTIPLE_PARTITIONS = "multiple_partitions"
    """The provider runs several parts of the graph, and the viewer describes only one."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What was traced, where and how."""

    model: str = ""
    """A file, a package version or a cell."""
    device: str = ""
    ep: str = ""
    """ONNX Runtime's name of the execution provider."""
    tracing_level: str = "basic"
    tracing_backend: str = ""
    """The source: qnn, onnxruntime or openvino."""
    timestamp: str = ""
    num_samples: int = 0
    """Measured iterations without the warm-up; at level detail the one that is described."""
    schema: int = SCHEMA
    emulated: bool = False
    """Software computed in place of the device: its times are no times of the device."""
    target: str | None = None
    runtime: str | None = None
    """The packages that executed the model, with their versions."""
    machine: str | None = None
    tree: str | None = None
    """The tree digest of the package, or the digest of the model file."""
    component: str | None = None
    """Of a model with several graphs, each of which has a trace of its own."""
    warmup: int | None = None
    threads: int | None = None
    partitions: int | None = None
    """How many parts of the graph the provider runs one after another."""
    onnx_nodes: int | None = None
    """Nodes of the ONNX graph, constants excepted."""
    warnings: tuple[str, ...] | None = None
    """What makes the times doubtful."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole inference; a number is the mean of one inference where its name does not say
    otherwise."""

    inference_us: float | None = None
    """As the source reports it: the accelerator's time, or the run call without our loop."""
    wall_us: float | None = None
    """The run call, timed from outside. Tracing makes it longer than a benchmark's."""
    operators_us: float | None = None
    """The sum of all operators."""
    unprofiled_us: float | None = None
    """The median of the run call without the profiler, where that makes it notably longer."""
    profiler_operator_us: float | None = None
    """What the profiler adds to each operator, as far as sums can tell; off in `estimated_us`."""
    hvx_threads: int | None = None
    """The most that any part of any inference used."""
    accelerator_cycles: float | None = None
    accelerator_us: float | None = None
    execute_us: float | None = None
    inf_per_s: float | None = None
    timeline_cycles: float | None = None
    utilization_pct: float | None = None
    dram_read_bytes: int | None = None
    dram_write_bytes: int | None = None
    vtcm_read_bytes: int | None = None
    vtcm_write_bytes: int | None = None
    vtcm_peak_bytes: int | None = None
    qnn_nodes: int | None = None
    htp_nodes: int | None = None
    unique_qnn_ops: int | None = None
    unique_htp_ops: int | None = None


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node of the ONNX graph that an operator holds."""

    name: str
    """Its name; of a node without one, its first output."""
    op_type: str


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator as the source executes it. Operators are sorted by `p50_us`, where it is not
    known by `avg_us`, largest first."""

    name: str
    """The ONNX node's name where it is known, else the source's."""
    op_path: str
    """The source's own name."""
    op_id: int
    """The source's own number; unique within its partition."""
    avg_us: float
    """The mean over the samples in which it appears."""
    total_us: float
    """The sum of all samples."""
    sample_count: int
    percent_of_total: float
    """The mean share of an inference. What is missing from 100 is outside of all operators."""
    order: int = 0
    """Its place in the order of execution."""
    estimated_us: float | None = None
    """The mean of the middle half of its samples, without what the profiler adds."""
    estimated_percent: float | None = None
    """The share of that in a run without the profiler."""
    samples_us: tuple[float, ...] = ()
    """One for each sample in which it appears; empty where the source keeps only a mean."""
    p50_us: float | None = None
    """The median, which a sample that other work has drawn out does not change."""
    p90_us: float | None = None
    op_type: str | None = None
    """The source's own type or implementation."""
    provider: str | None = None
    """The execution provider, if the source reports it."""
    partition: int | None = None
    onnx_op_type: str | None = None
    """The type of the principal node."""
    onnx_inputs: tuple[str, ...] | None = None
    onnx_outputs: tuple[str, ...] | None = None
    onnx_attributes: Mapping[str, Any] | None = None
    onnx_nodes: tuple[OnnxNode, ...] | None = None
    """All nodes that it holds, in graph order: more than one if it is fused."""
    data_type: str | None = None
    """Of the first output."""
    dims: tuple[int, ...] | None = None
    """Of the first output."""
    dominant_path_us: float | None = None
    dram_read_bytes: int | None = None
    dram_write_bytes: int | None = None
    vtcm_read_bytes: int | None = None
    vtcm_write_bytes: int | None = None
    vtcm_hit_ratio: float | None = None
    num_htp_ops: int | None = None

    @property
    def type(self) -> str:
        """The type to show: of a single ONNX node its own, of a fused operator the source's."""
        fused = len(self.onnx_nodes or ()) > 1
        return (fused and self.op_type) or self.onnx_op_type or self.op_type or ""


@dataclass(frozen=True, slots=True)
class Distribution:
    """One value for each measured iteration, summed up. Microseconds."""

    count: int
    mean_us: float
    min_us: float
    p50_us: float
    p90_us: float
    max_us: float
    std_us: float
    cv: float
    """Standard deviation by mean; 0 if the mean is."""


@dataclass(frozen=True, slots=True)
class TypeTotal:
    """All operators of one type."""

    type: str
    count: int
    avg_us: float
    """Their sum in one inference."""
    percent_of_total: float
    estimated_us: float | None = None
    estimated_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the operators add up to."""

    operators: int = 0
    mapped_operators: int = 0
    """Those that are known in the ONNX graph."""
    onnx_nodes_covered: int = 0
    """Nodes of the ONNX graph that some operator holds."""
    other_us: float | None = None
    """Of one inference, outside of all operators."""
    inference: Distribution | None = None
    """As the source reports it."""
    wall: Distribution | None = None
    """The run call, timed from outside."""
    unprofiled: Distribution | None = None
    """The run call in runs without the profiler."""
    types: tuple[TypeTotal, ...] = ()
    """Largest first."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The result of a trace."""

    metadata: Metadata
    status: TraceStatus
    summary: Summary = field(default_factory=Summary)
    operators: tuple[Operator, ...] = ()
    statistics: Statistics = field(default_factory=Statistics)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """What the source wrote, by kind: paths relative to this result."""
    error: str | None = None
    fallback_reason: FallbackReason | None = None

    def __post_init__(self) -> None:
        """A reason to fall back belongs to that status, and to no other."""
        if (self.fallback_reason is None) == (self.status is TraceStatus.BASIC_FALLBACK):
            raise ValueError(f"status {self.status} with fallback_reason {self.fallback_reason}")

    @property
    def usable(self) -> bool:
        """Whether its operators can be shown."""
        return self.status in {TraceStatus.OK, TraceStatus.BASIC_FALLBACK}

    def to_json(self) -> dict[str, Any]:
        """Plain values; the eight top keys are always there, others only where they are known."""
        found: dict[str, Any] = _known(codec.to_json(self))
        return {"error": None, "fallback_reason": None, **found}

    @classmethod
    def from_json(cls, value: object) -> Trace:
        """A trace from its JSON, with keys of newer versions left out. Raises `ValueError`."""
        json.dumps(value, allow_nan=False)  # refuses what is no number in JSON
        return codec.from_json(value, cls, exact=False)


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return value
