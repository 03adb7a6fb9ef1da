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
_ERRORS = frozenset({"Error", "Fatal", "Critical"})
_TELLS_NOTHING = frozenset({"SourceContext", "UtcTimestamp"})
"""Fields that every line has; those that begin with @ are the format's own."""
_LONGEST = 300
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
    reason: str = ""
    """What the other fields of an error say: its exception, its properties."""

    @property
    def is_error(self) -> bool:
        """Warnings are none: successful runs are full of them."""
        return self.level in _ERRORS


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
        reason=_reason(data) if str(data.get("@l")) in _ERRORS else "",
    )


def final_error(lines: tuple[str, ...]) -> str:
    """What the tool said last as an error; else its last words that are not JSON, or nothing."""
    events = [read_event(line) for line in lines if line.strip()]
    errors = [event for event in events if event.is_error]
    own = [event for event in errors if event.source.startswith("ArtifactTool.Program")]
    if own or errors:
        return _told((own or errors)[-1], errors)
    plain = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("{")]
    return plain[-1] if plain else ""


def _told(last: Event, errors: list[Event]) -> str:
    """An error with its reason; one that gives none is explained by the error before it."""
    before = errors[: errors.index(last)]
    reason = last.reason
    if not reason and before and "unexpected error" in last.text.lower():
        reason = ": ".join(filter(None, (before[-1].text, before[-1].reason)))
    return f"{last.text.rstrip('.')}: {reason}" if reason and reason not in last.text else last.text


def _reason(data: dict[str, Any]) -> str:
    """The exception without its stack, innermost cause included, and the text properties."""
    told = []
    if isinstance(exception := data.get("@x"), str):
        lines = [line.strip() for line in exception.splitlines()]
        told += [line.removeprefix("---> ") for line in lines[:1]]
        told += [line.removeprefix("---> ") for line in lines[1:] if line.startswith("---> ")][-1:]
    told += [
        value
        for name, value in data.items()
        if isinstance(value, str) and not name.startswith("@") and name not in _TELLS_NOTHING
    ]
    known = str(data.get("@m", ""))
    fresh = [" ".join(text.split())[:_LONGEST] for text in dict.fromkeys(told) if text.strip()]
    return "; ".join(text for text in fresh if text not in known)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
