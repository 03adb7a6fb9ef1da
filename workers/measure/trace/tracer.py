"""Traces one graph of a subject in the host of its runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from workers.errors import BuildFailed
from workers.host.watch import UNWATCHED, Watching
from workers.measure.result import this_machine
from workers.measure.subject import Graph, Subject
from workers.measure.trace import graph as onnx
from workers.measure.trace.interpret import FindViewer, Interpreted, Seen, interpret
from workers.measure.trace.operators import Series, by_cost, per_inference, statistics
from workers.measure.trace.profiler_cost import added_to_each, estimated
from workers.measure.trace.readings import Window
from workers.measure.trace.result import Metadata, Trace, TraceStatus
from workers.runtimes.kinds import CPU, QNN
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime

STAGE = "trace"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a graph is traced."""

    level: str
    window: Window
    threads: int = 0


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
        about = self._metadata(subject, graph, plan)
        try:
            told = self._watched(subject.runtime, graph, plan, folder)
        except BuildFailed as error:
            end = f" ({error.log_tail.splitlines()[-1]})" if error.log_tail else ""
            return not_run(about, f"{error.failure}: {error.reason}{end}")
        if told.get("error"):
            return not_run(about, f"{_WHERE[told['at']]}: {told['error']}")
        if told.get("monitor"):
            return Trace(about, TraceStatus.NO_DATA, error=told["monitor"])
        found = interpret(
            Seen(
                source=about.tracing_backend,
                level=plan.level,
                folder=folder,
                window=plan.window,
                told=told["seen"],
                parts=told["parts"].get(QNN),
            ),
            self.find_viewer,
        )
        wall, plain = ([one / 1000 for one in told[name]] for name in ("times", "plain"))
        names = self._names(subject.runtime, graph, folder)
        return assembled(about, found, names, wall, plain)

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

    def _names(
        self, runtime: Runtime, graph: Graph, folder: Path
    ) -> Callable[[Sequence[Series]], int | None]:
        """Puts what the ONNX graph knows into series; gives the number of its nodes."""

        def put(series: Sequence[Series]) -> int | None:
            told = graph_of(self.runtimes, graph.file)
            if told is None:
                return None
            if runtime.provider == CPU:
                optimized = self._optimized(runtime, graph.file, folder)
                if optimized is not None:
                    onnx.put_outputs(optimized, series)
            onnx.put_names(told, series)
            return len(told.nodes)

        return put

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
                one.unlink(missing_ok=True)


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
    return onnx.Graph.from_json(reply.result)


def not_run(about: Metadata, error: str) -> Trace:
    """The model failed, not the source."""
    return Trace(replace(about, num_samples=0), TraceStatus.NOT_RUN, error=error)


def assembled(
    about: Metadata,
    found: Interpreted,
    names: Callable[[Sequence[Series]], int | None],
    wall: Sequence[float] = (),
    plain: Sequence[float] = (),
) -> Trace:
    """A result from readings, with the names of the ONNX graph; `plain`: microseconds of runs
    without the profiler."""
    readings = found.readings
    if readings is None:
        about = replace(about, num_samples=0)
        return Trace(about, found.status, artifacts=found.artifacts, error=found.error)
    nodes = names(readings.series)
    operators = by_cost([one.operator() for one in readings.series])
    added = added_to_each(operators, readings.samples, plain) if plain else None
    if added is not None:
        operators = estimated(operators, readings.samples, plain, added)
    return Trace(
        metadata=replace(
            about,
            num_samples=readings.samples,
            partitions=readings.partitions,
            onnx_nodes=nodes,
        ),
        status=found.status,
        summary=replace(
            readings.summary,
            wall_us=fmean(wall) if wall else None,
            operators_us=per_inference(operators, readings.samples),
            unprofiled_us=fmean(plain) if plain else None,
            profiler_operator_us=added,
        ),
        operators=operators,
        statistics=statistics(
            operators, readings.samples, found.inference or readings.inference, wall, plain
        ),
        artifacts=found.artifacts,
        error=found.error,
        fallback_reason=found.fallback_reason,
    )
