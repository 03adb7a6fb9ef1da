"""What a report shows of a sweep."""

from __future__ import annotations

from typing import Any

from flows.observe.summaries.document import summary_document
from flows.report.collect import collect
from state.reading import StateReader
from state.records import SweepInfo


def reported(
    state: StateReader, info: SweepInfo, against: SweepInfo | None = None
) -> dict[str, Any]:
    """The document of the page."""
    return collect(state, summary_document(state, info, against))
