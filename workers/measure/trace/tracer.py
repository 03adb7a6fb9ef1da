"""Traces of one graph: made in the host of its runtime, or of profiles that were made elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

from machine.files import unlink
from matrix.codec import from_json
from workers.errors import BuildFailed
from workers.host.watch import UNWATCHED, Watching
from workers.measure.benchmark import Load
from workers.measure.result import this_machine
from workers.measure.subject import Graph, Subject
from workers.measure.trace import graph as onnx
from workers.measure.trace.interpret import FindViewer, Seen, detailed, interpret
from workers.measure.trace.operators import (
    NoData,
    Readings,
    Unreadable,
    Window,
    added_to_each,
    by_cost,
    estimated,
    per_inference,
    statistics,
)
from workers.measure.trace.qnn_csv import read_csv
from workers.measure.trace.result import Metadata, Trace, TraceStatus
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import QNN, Runtime
from workers.session import CPU

STAGE = "trace"
WRITTEN = ("profile", "log", "runs")
"""Kinds of files that a monitor reports."""
STALLED = 10
"""So many times the usual run: other work had the processor meanwhile."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a graph is traced."""

    level: str
    window: Window
    threads: int = 0


def _stalled(wall: Sequence[float], source: str) -> Iterator[str]:
    """That one run took far longer than the others: the times of its operators say little."""
    usual, longest = (median(wall), max(wall)) if wall else (0.0, 0.0)
    if len(wall) < 3 or longest <= STALLED * usual:
        return
    found = f"one run took {longest / usual:.0f} times as long as the others"
    if source == "openvino":
        found += ", and OpenVINO tells only the mean of all runs: trace again"
    yield found


def source_of(runtime: Runtime) -> str:
    """Where the times of operators come from."""
    return runtime.kind if runtime.kind in {"qnn", "openvino"} else "onnxruntime"


@dataclass(slots=True)
class Tracer:
    """Traces in the hosts of runtimes, each in a process of its own."""

    runtimes: Runtimes
    find_viewer: FindViewer
    watching: Watching = UNWATCHED

    def trace(self, subject: Subject, graph: Graph, plan: Plan, folder: Path) -> Trace:
        """The trace of one graph. What the source writes stays in the folder, which is new."""
        about, load = self._metadata(subject, graph, plan), Load()
        try:
            with load.window():
                told = self._watched(subject.runtime, graph, plan, folder)
        except BuildFailed as error:
            end = f" ({error.log_tail.splitlines()[-1]})" if error.log_tail else ""
            return failed(about, TraceStatus.NOT_RUN, f"{error.failure}: {error.reason}{end}")
        if told.get("error"):
            text = f"{_WHERE[told['at']]}: {told['error']}"
            return failed(about, TraceStatus.NOT_RUN, text)
        if told.get("monitor"):
            return Trace(about, TraceStatus.NO_DATA, error=told["monitor"])
        load.own += told["cpu"]
        wall, plain = ([one / 1000 for one in told[name]] for name in ("times", "plain"))
        doubts = (*load.warnings(), *_stalled(wall, about.tracing_backend))
        about = replace(about, warnings=doubts or None)
        artifacts = {kind: name for kind in WRITTEN if (name := told["seen"].get(kind))}
        seen = Seen(
            source=about.tracing_backend,
            level=plan.level,
            folder=folder,
            window=plan.window,
            told=told["seen"],
            parts=told["parts"].get(QNN),
        )
        try:
            readings = interpret(seen, self.find_viewer)
        except (NoData, Unreadable) as error:
            return failed(about, error.status, str(error), artifacts)
        known = graph_of(self.runtimes, graph.file)
        if known is not None and subject.runtime.provider == CPU:
            optimized = self._optimized(subject.runtime, graph.file, folder)
            if optimized is not None:
                onnx.put_outputs(optimized, readings.series)
        return assembled(about, artifacts, readings, known, wall, plain)

    def _watched(self, runtime: Runtime, graph: Graph, plan: Plan, folder: Path) -> dict[str, Any]:
        args = {
            **graph.arguments,
            "folder": str(folder.absolute()),
            "source": source_of(runtime),
            "level": plan.level,
            "warmup": plan.window.warmup,
            "iterations": plan.window.iterations,
        }
        self.runtimes.renew(runtime)
        try:
            return dict(
                self.runtimes.call(runtime, "trace", args, self.watching, stage=STAGE).result
            )
        finally:
            self.runtimes.renew(runtime)  # a profiler stays on in the libraries of some vendors

    def _metadata(self, subject: Subject, graph: Graph, plan: Plan) -> Metadata:
        runtime, artifact = subject.runtime, subject.artifact
        return Metadata(
            model=artifact.cell or artifact.name,
            device=runtime.device,
            ep=runtime.provider,
            tracing_level=plan.level,
            tracing_backend=source_of(runtime),
            timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
            num_samples=plan.window.iterations,
            emulated=runtime.emulated,
            target=artifact.target or None,
            runtime=runtime.version,
            machine=this_machine().name,
            tree=artifact.tree or None,
            component=graph.component or None,
            warmup=plan.window.warmup,
            threads=plan.threads or None,
        )

    def _optimized(self, runtime: Runtime, file: Path, folder: Path) -> onnx.Graph | None:
        """The graph as ONNX Runtime executes it: it opens the model again and writes it down."""
        path = folder / "optimized.onnx"
        args = {"file": str(file.absolute()), "to": str(path.absolute())}
        try:
            self.runtimes.call(runtime, "optimized", args, stage=STAGE)
            return graph_of(self.runtimes, path)
        except BuildFailed:
            return None
        finally:
            for one in folder.glob(f"{path.stem}*"):
                unlink(one)


_WHERE = {
    "monitor": "the profiler cannot be set up",
    "open": "the model cannot be opened",
    "feed": "the input values do not fit",
    "run": "the model fails to run",
}


def graph_of(runtimes: Runtimes, file: Path) -> onnx.Graph | None:
    """The nodes of an ONNX file; None if it cannot be read, and the source's names are left."""
    try:
        reply = runtimes.checker.call("graph", {"file": str(file.absolute())}, stage=STAGE)
    except BuildFailed:
        return None
    return from_json(reply.result, onnx.Graph)


def failed(
    about: Metadata, status: TraceStatus, error: str, artifacts: Mapping[str, str] | None = None
) -> Trace:
    """The model or the source failed: there is nothing that could be shown."""
    return Trace(replace(about, num_samples=0), status, artifacts=artifacts or {}, error=error)


def assembled(
    about: Metadata,
    artifacts: Mapping[str, str],
    readings: Readings,
    graph: onnx.Graph | None,
    wall: Sequence[float] = (),
    plain: Sequence[float] = (),
) -> Trace:
    """A result from readings, with the names of the ONNX graph; `plain`: microseconds of runs
    without the profiler."""
    if graph is not None:
        onnx.put_names(graph, readings.series)
    operators = by_cost([one.operator() for one in readings.series])
    added = added_to_each(operators, readings.samples, plain) if plain else None
    if added is not None:
        operators = estimated(operators, readings.samples, plain, added)
    lacking = readings.lacking
    return Trace(
        metadata=replace(
            about,
            num_samples=readings.samples,
            partitions=readings.partitions,
            onnx_nodes=len(graph.nodes) if graph is not None else None,
        ),
        status=TraceStatus.BASIC_FALLBACK if lacking else TraceStatus.OK,
        summary=replace(
            readings.summary,
            wall_us=fmean(wall) if wall else None,
            operators_us=per_inference(operators, readings.samples),
            unprofiled_us=median(plain) if plain else None,
            profiler_operator_us=added,
        ),
        operators=operators,
        statistics=statistics(operators, readings.samples, readings.inference, wall, plain),
        artifacts={**artifacts, **readings.artifacts},
        error=str(lacking) if lacking else None,
        fallback_reason=lacking.reason if lacking else None,
    )


def trace_of(model: str, csv: Path, qhas: Path | None, graph: onnx.Graph | None) -> Trace:
    """The trace of a profile that QNN wrote elsewhere. All its samples count, the warm-up too if
    there was one."""
    about = Metadata(
        model=model,
        ep=QNN,
        tracing_level="detail" if qhas else "basic",
        tracing_backend="qnn",
        timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    artifacts = {"profile": csv.name}
    try:
        readings = read_csv(csv)
    except (NoData, Unreadable) as error:
        return failed(about, error.status, str(error), artifacts)
    if qhas:
        artifacts["qhas"] = qhas.name
        readings = detailed(readings, qhas, artifacts)
    # The emulator uses no thread of the vector unit; every device does.
    about = replace(about, emulated=readings.summary.hvx_threads == 0)
    return assembled(about, artifacts, readings, graph)
