"""The pages of traces beside a report."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from flows.observe.trace.page import write
from machine.disk import reason
from matrix.errors import UsageError
from state.damage import Tolerated
from state.reading import StateReader
from state.records import MeasurementKind, SweepInfo
from workers.measure.trace.result import Trace


def write_traces(state: StateReader, info: SweepInfo, report: Path) -> dict[int, str]:
    """Write a page for each trace of a package of the sweep into `NAME-traces` beside the report.

    Returns where they are, relative to the report, by their measurements.
    """
    trees = {one.tree for one in state.outcomes(info.id, brief=True) if one.tree}
    folder, pages = report.with_name(f"{report.stem}-traces"), dict[int, str]()
    for one in state.measurements(trees, MeasurementKind.TRACE):
        raw = state.raw_of(one.id)
        with Tolerated(f"the trace {one.id} of {one.cell or one.tree[:12]}"):
            trace = Trace.from_json(raw)
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise UsageError(f"{folder} cannot be made: {reason(error)}") from None
            write(trace, folder / f"{one.id}.html")
            pages[one.id] = f"{quote(folder.name)}/{one.id}.html"
    return pages
