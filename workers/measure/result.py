"""The results of a benchmark, with its protocol and its machine.

JSON through `matrix.codec`; fields are only ever added.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from matrix.errors import UsageError
from workers.measure.subject import Artifact
from workers.runtimes.runtime import Runtime

SCHEMA = 1
MOST_ITERATIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class Protocol:
    """Two measurements can be compared only if they were made by the same protocol."""

    warmup: int = 20
    """Runs of each session that are not counted."""
    iterations: int = 500
    """Counted runs of each session."""
    sessions: int = 3
    """Each begins with a new process."""
    threads: int = 0
    """Threads of the runtime; 0: its default."""

    def check(self) -> None:
        """Raise `UsageError` unless it can be followed."""
        for name, least, most in (
            ("warmup", 0, MOST_ITERATIONS),
            ("iterations", 1, MOST_ITERATIONS),
            ("sessions", 1, 1000),
            ("threads", 0, 4096),
        ):
            if not least <= getattr(self, name) <= most:
                raise UsageError(
                    f"--{name}: {getattr(self, name)} is out of range", hint=f"{least} to {most}"
                )


@dataclass(frozen=True, slots=True)
class Machine:
    """Enough to decide whether two measurements were made on the same machine."""

    name: str
    system: str
    """`Linux x86_64`."""
    processor: str
    cores: int
    memory: int
    """Bytes."""


@cache
def this_machine() -> Machine:
    """The one that asks."""
    from machine.memory import total  # every command reads the settings, and with them protocols
    from workers.session import processor

    return Machine(
        name=platform.node() or "localhost",
        system=f"{platform.system()} {platform.machine()}",
        processor=processor(),
        cores=os.cpu_count() or 1,
        memory=total(),
    )


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

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Latency:
        """Of the times of single runs."""
        import numpy as np

        times = np.asarray(nanoseconds, dtype=np.float64) / 1e6
        mean = float(times.mean())
        std = float(times.std(ddof=1)) if len(times) > 1 else 0.0
        p50, p90, p95, p99 = map(float, np.percentile(times, (50, 90, 95, 99)))
        return cls(
            count=len(times),
            p50=p50,
            p90=p90,
            p95=p95,
            p99=p99,
            mean=mean,
            std=std,
            min=float(times.min()),
            max=float(times.max()),
            cv=std / mean if mean else 0.0,
            throughput=1000 / mean if mean else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Session:
    """One process: the model opened twice, warmed up, and run."""

    open_cold: float | None
    """Seconds of the first opening in a new process; None: another model was opened before."""
    open_warm: float
    """Seconds of the second opening in the same process."""
    open_memory: int
    """Bytes that the process grew by during the first opening; 0 if unknown."""
    run_memory: int
    """Bytes that it grew by over all runs."""
    p50: float
    """The median of its runs in milliseconds."""
    samples: str
    """The time of every counted run, packed (`workers.measure.benchmark.pack`)."""


@dataclass(frozen=True, slots=True)
class GraphResult:
    """One graph of the subject; either `latency` or `fault`."""

    component: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Inputs by name, as `int64 [1, 128]`."""
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
