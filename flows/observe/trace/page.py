"""A trace as one HTML file, alone or against another one."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from flows.observe.masking import masked_json
from flows.observe.textfile import replace_text
from flows.observe.trace.difference import difference
from flows.observe.webpage import script_of, webpage
from workers.measure.trace.result import Trace

MOST_SAMPLES = 12
"""Of an operator; the JSON of the trace has all."""


def render(trace: Trace, against: Trace | None = None) -> str:
    """The page. Everything that comes from a model is text to it, never markup."""
    data = {"trace": _short(trace), "difference": None}
    if against is not None:
        data["difference"] = difference(trace, against).to_json()
    about = trace.metadata
    where = f"{about.ep} {about.device}" + (" (emulated)" if about.emulated else "")
    return webpage(
        _asset("trace.html"),
        _asset("trace.css"),
        script_of(_asset("trace.js")),
        masked_json(data),
        title=f"trace of {about.model or 'a model'}" + (" (emulated)" if about.emulated else ""),
        plainly=f"{len(trace.operators)} operators on {where}: {trace.status.value}",
    )


def write(trace: Trace, dest: Path, against: Trace | None = None) -> None:
    """Write the page."""
    replace_text(dest, render(trace, against), hint="choose another file")


def _short(trace: Trace) -> dict[str, Any]:
    told = trace.to_json()
    for one in told["operators"]:
        one["samples_us"] = one.get("samples_us", [])[: MOST_SAMPLES + 1]
    return told


def _asset(name: str) -> str:
    return files("flows.observe.trace").joinpath("assets", name).read_text("utf-8")
