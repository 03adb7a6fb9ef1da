"""The lines that ArtifactTool logs: one JSON object each (Serilog's compact form), mostly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_PROGRESS = {
    "Uploading": ("UploadedBytes", "TotalBytes"),
    "Downloading": ("DownloadedBytes", "TotalBytes"),
    "ProcessingFiles": ("ProcessedFiles", "TotalFiles"),
}
BYTES = frozenset({"Uploading", "Downloading"})


@dataclass(frozen=True, slots=True)
class Event:
    """One line. A line that is no JSON (a crashing runtime, a native library) is text only."""

    text: str
    level: str = "Information"
    name: str = ""
    source: str = ""
    done: int = 0
    total: int = 0

    @property
    def is_error(self) -> bool:
        """Warnings are none: successful runs are full of them."""
        return self.level in {"Error", "Fatal", "Critical"}


def read_event(line: str) -> Event:
    """Understand a line as far as it can be; never fails."""
    if not line.lstrip().startswith("{"):
        return Event(line)
    try:
        data = json.loads(line)
    except ValueError:
        return Event(line)
    if not isinstance(data, dict):
        return Event(line)
    identity = data.get("EventId")
    name = identity.get("Name") if isinstance(identity, dict) else None
    keys = _PROGRESS.get(name, ("", "")) if isinstance(name, str) else ("", "")
    return Event(
        text=str(data.get("@m", data.get("@mt", line))),
        level=str(data.get("@l", "Information")),
        name=str(name or ""),
        source=str(data.get("SourceContext", "")),
        done=_count(data.get(keys[0])),
        total=_count(data.get(keys[1])),
    )


def final_error(lines: tuple[str, ...]) -> str:
    """What the tool said last as an error; else its last words that are not JSON, or nothing."""
    events = [read_event(line) for line in lines if line.strip()]
    errors = [event for event in events if event.is_error]
    own = [event for event in errors if event.source.startswith("ArtifactTool.Program")]
    if own or errors:
        return (own or errors)[-1].text
    plain = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("{")]
    return plain[-1] if plain else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
