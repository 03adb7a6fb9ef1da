"""HTML files that hold everything they show: no network, and no script but their own."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from string import Template
from typing import Any


def webpage(template: str, style: str, script: str, data: Any, **texts: str) -> str:
    """The page. Its policy names our script and style by digest: nothing else runs or loads.

    `data` becomes JSON for the script, `texts` become text wherever the template names them.
    """
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'"
    )
    return Template(template).substitute(
        policy=html.escape(policy),
        style=style,
        script=script,
        data=_embedded(data),
        **{name: html.escape(text) for name, text in texts.items()},
    )


def script_of(*parts: str) -> str:
    """One script in a scope of its own, with the functions that all pages use."""
    shared = files("flows.observe").joinpath("assets", "elements.js").read_text("utf-8")
    joined = "\n".join((shared, *parts))
    return f'"use strict";\n(() => {{\n{joined}}})();\n'


def _embedded(data: Any) -> str:
    # `<` is all that could end the script element early; JSON may spell it as an escape.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
