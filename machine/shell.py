"""Words as they are typed at a shell."""

from __future__ import annotations

import os
import re

_PLAIN_THERE = r"[\w.:/\\+-][\w.:/\\+@=~*?\[\]-]*"
"""What neither cmd nor PowerShell changes."""


def shell_word(text: str) -> str:
    """A text as it is typed at a shell; on Windows, the same for cmd and PowerShell."""
    if os.name == "nt":
        return windows_word(text)
    from shlex import quote

    return quote(text)


def windows_word(text: str) -> str:
    """A text in the quotes that both shells of Windows know, unless it means itself to both."""
    if re.fullmatch(_PLAIN_THERE, text):
        return text
    # Programs take a backslash before a quote for an escape, and no other one.
    escaped = re.sub(r'(\\*)(["]|$)', lambda ends: ends[1] * 2 + (ends[2] and '\\"'), text)
    return f'"{escaped}"'
