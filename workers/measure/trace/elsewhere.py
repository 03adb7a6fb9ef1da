"""Profiles of QNN that were made elsewhere, with the same result and the same kinds of failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from workers.measure.trace import graph as onnx
from workers.measure.trace.errors import NoData, Unreadable
from workers.measure.trace.interpret import Interpreted, detailed, failed, fallback
from workers.measure.trace.operators import Series
from workers.measure.trace.qnn_csv import read_csv
from workers.measure.trace.result import Metadata, Trace, TraceStatus
from workers.measure.trace.tracer import assembled, graph_of
from workers.measure.trace.viewer import NoDetail
from workers.runtimes.kinds import QNN
from workers.runtimes.pool import Runtimes


@dataclass(frozen=True, slots=True)
class Profile:
    """What was made elsewhere."""

    name: str
    """As it was given."""
    csv: Path
    qhas: Path | None = None
    model: Path | None = None


def read(profile: Profile, runtimes: Runtimes | None) -> Trace:
    """All its samples count, the warm-up too if there was one; runtimes read the model."""
    about = Metadata(
        model=profile.model.name if profile.model else profile.name,
        ep=QNN,
        tracing_level="detail" if profile.qhas else "basic",
        tracing_backend="qnn",
        timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    found = _interpreted(profile)
    # The emulator uses no thread of the vector unit; every device does.
    if found.readings is not None and found.threads == 0:
        about = replace(about, emulated=True)

    def names(series: Sequence[Series]) -> int | None:
        graph = graph_of(runtimes, profile.model) if runtimes and profile.model else None
        if graph is None:
            return None
        onnx.put_names(graph, series)
        return len(graph.nodes)

    return assembled(about, found, names)


def _interpreted(profile: Profile) -> Interpreted:
    artifacts = {"profile": profile.csv.name}
    try:
        basic = read_csv(profile.csv)
    except (NoData, Unreadable) as error:
        return replace(failed(error), artifacts=artifacts)
    threads = basic.summary.hvx_threads
    if profile.qhas is None:
        return Interpreted(TraceStatus.OK, basic, artifacts, threads=threads)
    artifacts["qhas"] = profile.qhas.name
    try:
        detail = detailed(profile.qhas)
    except NoDetail as error:
        return replace(fallback(basic, error.reason, str(error), artifacts), threads=threads)
    return Interpreted(
        TraceStatus.OK, detail, artifacts, inference=basic.inference, threads=threads
    )
