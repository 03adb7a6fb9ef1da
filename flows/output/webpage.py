"""Files that a user asks for: each replaced as a whole, or one line says why not; and HTML that
holds everything it shows: no network, and no script but its own."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from machine.files import is_link, replace_file
from machine.user_errors import user_errors
from matrix.errors import UsageError


def replace_text(path: Path, text: str, *, hint: str) -> None:
    """Write a file. `hint` says how to choose another place."""
    if is_link(path):  # replacing it would not change what it leads to, such as /dev/stdout
        raise UsageError(f"cannot write {path}: it is a link", hint=hint)
    with user_errors(f"cannot write {path}", hint):
        replace_file(path, text.encode())


def webpage(
    name: str, scripts: tuple[str, ...], data: Any, *, plain: bool = False, **texts: str
) -> str:
    """The page of the package `flows.NAME`, whose body, style and scripts are its assets.
    The policy names our script and style by digest: nothing else runs or loads.

    `plain`: the style of plain pages comes first.

    `data` becomes JSON for the script, `texts` become text wherever the body names them.
    """
    assets = files(f"flows.{name}").joinpath("assets")
    shared = files("flows.output").joinpath("assets")
    sources = (shared.joinpath("elements.js"), *(assets.joinpath(f"{one}.js") for one in scripts))
    joined = "\n".join(one.read_text("utf-8") for one in sources)
    script = f'"use strict";\n(() => {{\n{joined}}})();\n'
    style = assets.joinpath(f"{name}.css").read_text("utf-8")
    if plain:
        style = shared.joinpath("page.css").read_text("utf-8") + style
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'"
    )
    # `<` is all that could end the script element early; JSON may spell it as an escape.
    embedded = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    escaped = {name: html.escape(text) for name, text in texts.items()}
    body = Template(assets.joinpath(f"{name}.html").read_text("utf-8")).substitute(escaped)
    return Template(shared.joinpath("page.html").read_text("utf-8")).substitute(
        policy=html.escape(policy),
        style=style,
        script=script,
        data=embedded,
        body=body,
        title=escaped["title"],
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
