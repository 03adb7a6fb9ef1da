"""The output of tools as plain text, so that it cannot act on our terminal.

Logs and messages hold colours, progress bars that overwrite themselves, and whatever a model's
own code prints.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain_text(text: str) -> str:
    """Text without escape sequences and control characters, and with the last version of lines
    that overwrite themselves."""
    text = _ESCAPES.sub("", text)
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))
