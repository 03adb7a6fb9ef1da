"""A report as one HTML file, with a page for each trace beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from flows.observe.summaries.document import summary_document
from flows.output.webpage import replace_text, webpage
from flows.report.collect import collect
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace, find_sweep
from flows.trace.traces import write as write_trace
from machine.user_errors import user_errors
from state.damage import reading
from state.reading import StateReader
from state.records import MeasurementKind, SweepInfo
from workers.measure.trace.result import Trace

SCRIPTS = ("model", "filters", "grid", "panel", "timeline", "sections", "main")
"""In the order in which they use each other."""


def render(document: dict[str, Any]) -> str:
    """The page."""
    stamp, totals = document["heading"]["stamp"], document["totals"]
    counts = ", ".join(f"{count} {name}" for name, count in totals["counts"].items())
    return webpage(
        "report",
        SCRIPTS,
        document,
        title=f"sweep {stamp}",
        plainly=f"Sweep {stamp}: {totals['cells']} cells: {counts}.",
    )


def report_of(settings: Settings, stamp: str) -> str:
    """The page of a sweep as it is now."""
    work = Workspace(settings)
    with work.read_state() as state:
        info = find_sweep(state, stamp)
        return render(collect(state, summary_document(state, info), work=work))


def write(document: dict[str, Any], dest: Path) -> None:
    """Write the page."""
    replace_text(dest, render(document), hint="choose another file with -o")


def write_traces(state: StateReader, info: SweepInfo, report: Path) -> dict[int, str]:
    """Write a page for each trace of a package of the sweep into `NAME-traces` beside the report.

    Returns where they are, relative to the report, by their measurements.
    """
    trees = {one.tree for one in state.outcomes(info.id, brief=True) if one.tree}
    folder, pages = report.with_name(f"{report.stem}-traces"), dict[int, str]()
    for one in state.measurements(trees, MeasurementKind.TRACE):
        raw = state.raw_of(one.id)
        with reading(f"the trace {one.id} of {one.cell or one.tree[:12]}"):
            trace = Trace.from_json(raw)
            with user_errors(f"{folder} cannot be made"):
                folder.mkdir(exist_ok=True)
            write_trace(trace, folder / f"{one.id}.html")
            pages[one.id] = f"{quote(folder.name)}/{one.id}.html"
    return pages
