"""A document as one HTML file: template, style and scripts are package data beside this module."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path
from string import Template

from flows.observe.report.document import Document
from flows.observe.textfile import replace_text

SCRIPTS = ("model", "filters", "grid", "panel", "timeline", "sections", "main")
"""In the order in which they use each other."""


def render(document: Document) -> str:
    """The page. The policy names our script and style by digest: nothing else runs or loads."""
    style, script = _asset("report.css"), _script()
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'"
    )
    heading = document.heading
    return Template(_asset("report.html")).substitute(
        policy=html.escape(policy),
        title=html.escape(f"sweep {heading.stamp}"),
        plainly=html.escape(_plainly(document)),
        style=style,
        script=script,
        data=_embedded(document),
    )


def write(document: Document, dest: Path) -> None:
    """Write the page."""
    replace_text(dest, render(document), hint="choose another file with -o")


def _embedded(document: Document) -> str:
    # `<` is all that could end the script element early; JSON may spell it as an escape.
    text = json.dumps(document.to_json(), ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _plainly(document: Document) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in document.totals["counts"].items())
    cells = document.totals["cells"]
    return f"Sweep {document.heading.stamp}: {cells} cells: {counts}."


def _script() -> str:
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _asset(name: str) -> str:
    return files("flows.observe.report").joinpath("assets", name).read_text("utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
