"""A trace as one HTML file, alone or against another one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from flows.output.masking import masked_json
from flows.output.webpage import replace_text, webpage
from flows.trace.difference import difference
from workers.measure.trace.result import Trace

MOST_SAMPLES = 12
"""Of an operator; the JSON of the trace has all."""


def render(trace: Trace, against: Trace | None = None) -> str:
    """The page. Everything that comes from a model is text to it, never markup."""
    told, about = trace.to_json(), trace.metadata
    for one in told["operators"]:
        one["samples_us"] = one.get("samples_us", [])[: MOST_SAMPLES + 1]
    compared = asdict(difference(before=against, after=trace)) if against is not None else None
    mark = " (emulated)" if about.emulated else ""
    return webpage(
        "trace",
        ("trace",),
        masked_json({"trace": told, "difference": compared}),
        plain=True,
        title=f"trace of {about.model or 'a model'}{mark}",
        plainly=f"{len(trace.operators)} operators on {about.ep} {about.device}{mark}: "
        f"{trace.status.value}",
    )


def write(trace: Trace, dest: Path, against: Trace | None = None) -> None:
    """Write the page."""
    replace_text(dest, render(trace, against), hint="choose another file")
