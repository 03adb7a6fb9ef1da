"""The results of a benchmark. JSON through `matrix.codec`; fields are only ever added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.measure.machine import Machine
from workers.measure.protocol import Protocol
from workers.measure.subject import Artifact
from workers.runtimes.runtime import Runtime

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a graph could not be measured."""

    at: str
    """`open`, `feed` (its input values do not fit), `run`, or `crash` (the process was lost)."""
    failure: str
    """A failure class (`matrix.status.FailureClass`)."""
    message: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class Latency:
    """The distribution of the times of single runs, in milliseconds."""

    count: int
    p50: float
    p90: float
    p95: float
    p99: float
    mean: float
    std: float
    min: float
    max: float
    cv: float
    """The standard deviation as a share of the mean."""
    throughput: float
    """Runs per second, one after the other."""


@dataclass(frozen=True, slots=True)
class Session:
    """One process: the model opened twice, warmed up, and run."""

    open_cold: float | None
    """Seconds of the first opening in a new process; None: another model was opened before."""
    open_warm: float
    """Seconds of the second opening in the same process."""
    open_memory: int
    """Bytes that the process grew by over the first opening; 0 where it cannot be told."""
    run_memory: int
    """Bytes that it grew by over all runs."""
    p50: float
    """The median of its runs in milliseconds."""
    samples: str
    """The time of every counted run, packed (`workers.measure.samples`)."""


@dataclass(frozen=True, slots=True)
class GraphResult:
    """One graph of the subject; either `latency` or `fault`."""

    component: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    """By name what was fed, as `int64 [1, 128]`."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """How many nodes each provider took; empty: the runtime does not report it."""
    latency: Latency | None = None
    """Over all sessions."""
    sessions: tuple[Session, ...] = ()
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A subject measured by a protocol."""

    artifact: Artifact
    runtime: Runtime
    machine: Machine
    protocol: Protocol
    began: float
    """Seconds since 1970."""
    seconds: float
    graphs: tuple[GraphResult, ...]
    warnings: tuple[str, ...] = ()
    """What makes the times doubtful: drift, other work on the machine."""
    schema: int = SCHEMA

    @property
    def emulated(self) -> bool:
        """Whether software computed in place of the device: the times are not the device's."""
        return self.runtime.emulated

    @property
    def failed(self) -> bool:
        """Whether any graph could not be measured."""
        return any(graph.fault for graph in self.graphs)
