"""From what a monitor has seen to operators, or to the reason why there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from workers.measure.trace.errors import NoData, Unreadable
from workers.measure.trace.openvino_info import read_info
from workers.measure.trace.ort_profile import read_profile
from workers.measure.trace.qhas import read_qhas
from workers.measure.trace.qnn_csv import read_csv
from workers.measure.trace.readings import Readings, Window
from workers.measure.trace.result import FallbackReason, TraceStatus
from workers.measure.trace.viewer import NoDetail, Viewer
from workers.runtimes.kinds import QNN

FindViewer = Callable[[], Viewer]
"""Raises `NoDetail`."""


@dataclass(frozen=True, slots=True)
class Interpreted:
    """Readings with their status; without readings, `error` says why."""

    status: TraceStatus
    readings: Readings | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    fallback_reason: FallbackReason | None = None
    inference: tuple[float, ...] = ()
    """Of every measured iteration, where the readings themselves describe only one."""
    threads: int | None = None
    """Of the vector unit, as QNN tells them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer of a window."""

    source: str
    level: str
    folder: Path
    window: Window
    told: Mapping[str, Any]
    """What the monitor has seen."""
    parts: int | None = None
    """How many parts of the graph QNN runs."""


def interpret(seen: Seen, find_viewer: FindViewer) -> Interpreted:
    """Never raises for what a source has written."""
    artifacts = {
        key: name
        for key in ("profile", "log", "runs")
        if (name := seen.told.get(key)) and isinstance(name, str)
    }
    try:
        if seen.source == "qnn":
            told = _qnn(seen, find_viewer)
            return replace(told, artifacts={**artifacts, **told.artifacts})
        found = _plain(seen)
    except (NoData, Unreadable) as error:
        return replace(failed(error), artifacts=artifacts)
    if seen.level == "detail":
        text = f"{seen.source} has no more than the basic level"
        return fallback(found, FallbackReason.LEVEL_UNSUPPORTED, text, artifacts)
    return Interpreted(TraceStatus.OK, found, artifacts)


def failed(error: NoData | Unreadable) -> Interpreted:
    """Nothing that could be shown."""
    nothing = isinstance(error, NoData)
    status = TraceStatus.NO_DATA if nothing else TraceStatus.PARSE_FAILED
    return Interpreted(status, error=str(error))


def fallback(
    readings: Readings,
    reason: FallbackReason,
    error: str,
    artifacts: Mapping[str, str] | None = None,
) -> Interpreted:
    """The basic level in place of detail."""
    return Interpreted(
        TraceStatus.BASIC_FALLBACK, readings, artifacts or {}, error, fallback_reason=reason
    )


def _plain(seen: Seen) -> Readings:
    if seen.source == "openvino":
        return read_info(seen.told.get("operators", ()), seen.window)
    if not seen.told.get("runs"):
        raise NoData("ONNX Runtime wrote no profile")
    return read_profile(seen.folder / seen.told["runs"], seen.window)


def _qnn(seen: Seen, find_viewer: FindViewer) -> Interpreted:
    if not seen.told.get("profile"):
        raise NoData("QNN wrote no profile: it took no part of the graph")
    basic = _with_cpu(seen, read_csv(seen.folder / seen.told["profile"], seen.window, seen.parts))
    if seen.level != "detail":
        return Interpreted(TraceStatus.OK, basic)
    try:
        summary = _summary(seen, find_viewer)
        detail = detailed(summary)
    except NoDetail as error:
        return fallback(basic, error.reason, str(error))
    artifacts = {"qhas": summary.name, "schematic": seen.told["schematics"][0]}
    return Interpreted(TraceStatus.OK, detail, artifacts, inference=basic.inference)


def detailed(summary: Path) -> Readings:
    """A summary of the viewer. Raises `NoDetail`."""
    try:
        return read_qhas(summary)
    except (NoData, Unreadable) as error:
        raise NoDetail(FallbackReason.QHAS_PARSE_FAILED, str(error)) from None


def _summary(seen: Seen, find_viewer: FindViewer) -> Path:
    schematics = seen.told.get("schematics", ())
    if not seen.told.get("log"):
        raise NoDetail(FallbackReason.LOG_MISSING, "QNN wrote no log of the optrace")
    if not schematics:
        raise NoDetail(FallbackReason.SCHEMATIC_MISSING, "QNN wrote no schematic of the graph")
    if len(schematics) > 1:
        text = f"QNN runs {len(schematics)} parts of the graph, and its viewer describes one"
        raise NoDetail(FallbackReason.MULTIPLE_PARTITIONS, text)
    return find_viewer().run(seen.folder, seen.told["log"], schematics[0])


def _with_cpu(seen: Seen, own: Readings) -> Readings:
    """With the operators that QNN's provider left to the CPU, if there are any."""
    try:
        every = read_profile(seen.folder / str(seen.told.get("runs")), seen.window)
    except (NoData, Unreadable):
        return own
    rest = [one for one in every.series if one.facts.get("provider") != QNN]
    if not rest:
        return own
    scale = fmean(own.inference) / fmean(every.inference) if any(every.inference) else 0.0
    for one in own.series:
        one.shares *= scale
        one.facts["provider"] = QNN
    for one in rest:
        one.order += len(own.series)
        one.facts["partition"] = (own.partitions or 1) + 1
    summary = replace(own.summary, inference_us=every.summary.inference_us)
    return replace(own, series=(*own.series, *rest), summary=summary, inference=every.inference)
