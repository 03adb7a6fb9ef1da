"""Code blocks and commands of the pages of docs/."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]


DOCS = ROOT / "docs"


FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


SHOWN = re.compile(r"^(?:\$ )?modelmill (?=[a-z])")


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text("utf-8")) if kind == language]


def commands(page: Path) -> list[list[str]]:
    """Every modelmill command in the sh blocks of a page, split as a shell does."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1:] for line in words if line and line[0] == "modelmill"]


def shown(page: Path) -> list[list[str]]:
    """Also those of consoles and of plain text, which no test runs."""
    lines = "\n".join((*blocks(page, "console"), *blocks(page, "text"))).splitlines()
    typed = [line.removeprefix("$ ") for line in lines if SHOWN.match(line)]
    return [*commands(page), *(shlex.split(one, comments=True)[1:] for one in typed)]
