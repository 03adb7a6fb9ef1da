"""From what a monitor has seen to operators, or to the reason why there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from workers.measure.trace.operators import NoData, NoDetail, Readings, Series, Unreadable, Window
from workers.measure.trace.ort_profile import read_profile
from workers.measure.trace.qhas import read_qhas
from workers.measure.trace.qnn_csv import read_csv
from workers.measure.trace.result import FallbackReason, Summary
from workers.measure.trace.viewer import Viewer
from workers.runtimes.runtime import QNN

FindViewer = Callable[[], Viewer]
"""Raises `NoDetail`."""


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


def interpret(seen: Seen, find_viewer: FindViewer) -> Readings:
    """The operators that a source reports. Raises `NoData` or `Unreadable`."""
    if seen.source == "qnn":
        return _qnn(seen, find_viewer)
    if seen.source == "openvino":
        found = read_info(seen.told.get("operators", ()), seen.window)
    elif seen.told.get("runs"):
        found = read_profile(seen.folder / seen.told["runs"], seen.window)
    else:
        raise NoData("ONNX Runtime wrote no profile")
    if seen.level == "detail":
        text = f"{seen.source} has no more than the basic level"
        return replace(found, lacking=NoDetail(FallbackReason.LEVEL_UNSUPPORTED, text))
    return found


def _qnn(seen: Seen, find_viewer: FindViewer) -> Readings:
    if not seen.told.get("profile"):
        raise NoData("QNN wrote no profile: it took no part of the graph")
    basic = _with_cpu(seen, read_csv(seen.folder / seen.told["profile"], seen.window, seen.parts))
    if seen.level != "detail":
        return basic
    try:
        summary = _summary(seen, find_viewer)
    except NoDetail as error:
        return replace(basic, lacking=error)
    artifacts = {"qhas": summary.name, "schematic": seen.told["schematics"][0]}
    return detailed(basic, summary, artifacts)


def detailed(basic: Readings, summary: Path, artifacts: Mapping[str, str]) -> Readings:
    """The basic level with a summary of the viewer in its place, if that can be read.

    The summary describes one iteration: what is known of all of them stays.
    """
    try:
        detail = read_qhas(summary)
    except (NoData, Unreadable) as error:
        lacking = NoDetail(FallbackReason.QHAS_PARSE_FAILED, str(error))
        return replace(basic, lacking=lacking)
    whole = replace(detail.summary, hvx_threads=basic.summary.hvx_threads)
    return replace(detail, summary=whole, inference=basic.inference, artifacts=artifacts)


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


def read_info(rows: Sequence[Mapping[str, Any]], window: Window) -> Readings:
    """From the monitor's samples of each operator, see `workers.runtimes.trace`.

    OpenVINO keeps only the mean of all runs since the model was opened, in whole microseconds. From
    the means after the warm-up and after the last run follows the mean of the measured runs, and
    nothing about single ones. Counting in whole microseconds makes it uncertain by about one.
    Raises `NoData`.
    """
    means = [_mean(row["before"], row["after"], window) for row in rows]
    if not any(means):
        raise NoData("OpenVINO reports no times")
    whole = sum(means)
    return Readings(
        series=tuple(
            Series(
                path=row["name"],
                op_id=place,
                order=place,
                mean=mean,
                count=window.iterations,
                shares=mean / whole * window.iterations,
                facts=_facts(row),
                held=tuple(row.get("held", ())),
            )
            for place, (row, mean) in enumerate(zip(rows, means, strict=True))
        ),
        summary=Summary(),
        samples=window.iterations,
    )


def _mean(before: int, after: int, window: Window) -> float:
    """Of the measured runs; each mean was cut to whole microseconds."""
    whole = window.runs * (after + 0.5 * (after > 0)) - window.warmup * (
        before + 0.5 * (before > 0)
    )
    return max(0.0, whole / window.iterations)


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    types: Sequence[str] = str(row.get("precision") or "").split(",")
    return {
        "op_type": row.get("type") or None,
        "data_type": types[0] or None,
        "dims": tuple(row["dims"]) if row.get("dims") else None,
    }
