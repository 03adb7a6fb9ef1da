"""Keeping credentials out of what leaves the machine: reports, summaries, files for dashboards.

The state should hold none, but nobody can promise what a foreign tool prints into a log. So
whatever looks like a credential is masked on the way out.
"""

from __future__ import annotations

import re
from typing import Any

_SHAPES = (
    (re.compile(r"://[^/\s:@\"']*:[^/\s@\"']+@"), "://***@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9+/=._~-]{12,}"), r"\1 ***"),
    (re.compile(r"\b(?:hf_|ghp_|gho_|github_pat_|pypi-)[A-Za-z0-9_-]{16,}"), "***"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), "***"),
    (re.compile(r"(?i)([?&](?:sig|token|access_token|code|key)=)[^&\s\"']{8,}"), r"\1***"),
    (
        re.compile(
            r"(?i)\b([a-z0-9_]*(?:password|passwd|secret|api_?key|access_?key|_token|_pat)"
            r"[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]{4,}"
        ),
        r"\1***",
    ),
)


def masked(text: str) -> str:
    """`text` without what looks like a credential."""
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


def masked_json(value: Any) -> Any:
    """JSON with every string in it masked, except keys, which are ours."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {name: masked_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_json(item) for item in value]
    return value
