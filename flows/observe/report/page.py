"""A document as one HTML file: template, style and scripts are package data beside this module."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from flows.observe.report.document import Document
from flows.observe.textfile import replace_text
from flows.observe.webpage import script_of, webpage

SCRIPTS = ("model", "filters", "grid", "panel", "timeline", "sections", "main")
"""In the order in which they use each other."""


def render(document: Document) -> str:
    """The page."""
    return webpage(
        _asset("report.html"),
        _asset("report.css"),
        script_of(*(_asset(f"{name}.js") for name in SCRIPTS)),
        document.to_json(),
        title=f"sweep {document.heading.stamp}",
        plainly=_plainly(document),
    )


def write(document: Document, dest: Path) -> None:
    """Write the page."""
    replace_text(dest, render(document), hint="choose another file with -o")


def _plainly(document: Document) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in document.totals["counts"].items())
    cells = document.totals["cells"]
    return f"Sweep {document.heading.stamp}: {cells} cells: {counts}."


def _asset(name: str) -> str:
    return files("flows.observe.report").joinpath("assets", name).read_text("utf-8")
