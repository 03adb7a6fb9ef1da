"""Quantities as people write them, `20GB` or `15m`, and texts of any tool as they read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from matrix.errors import UsageError

_UNITS = ("", "K", "M", "G", "T")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE | re.ASCII)
_TIMES = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.ASCII)
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*[smhd]\s*)+|\d+(?:\.\d+)?", re.ASCII)

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def parse_size(text: str) -> int:
    """`20GB`, `512MiB`, `1048576` -> bytes."""
    match = _SIZE.fullmatch(text.strip())
    if not match or (match[3] and not match[2]):
        raise UsageError(f"'{text}' is not a size", hint="write it like 20GB, 512MiB or 1048576")
    thousand = 1024 if match[3] else 1000
    return int(float(match[1]) * thousand ** _UNITS.index(match[2].upper()))


def parse_duration(text: str) -> float:
    """`15m`, `1h30m`, `900` -> seconds; more than zero."""
    text = text.strip()
    times = _TIMES.findall(text) if _DURATION.fullmatch(text) else []
    seconds = sum(float(count) * _SECONDS[unit] for count, unit in times)
    if seconds <= 0:
        raise UsageError(f"'{text}' is not a time", hint="write it like 900, 90s, 15m or 1h30m")
    return seconds


def show_size(size: float) -> str:
    """Bytes for people, in decimal units as disks and feeds count them."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def show_ms(milliseconds: float) -> str:
    """A latency, or the time of an operator, with three significant digits."""
    for unit, value in (("us", 1000 * milliseconds), ("ms", milliseconds)):
        if abs(value) < 999.5:
            return f"{value:#.3g}".rstrip(".") + f" {unit}"
    seconds = milliseconds / 1000
    return f"{seconds:#.3g}".rstrip(".") + " s" if seconds < 999.5 else show_duration(seconds)


def show_us(microseconds: float) -> str:
    """The same of a time in microseconds."""
    return show_ms(microseconds / 1000)


def show_duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 90:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h" if hours else f"{days}d"


def show_moment(at: float) -> str:
    """A local time with its offset, because it may be read on another machine."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def plain_text(text: str) -> str:
    """The output of a tool so that it cannot act on our terminal: without escape sequences and
    control characters, and with the last version of lines that overwrite themselves."""
    text = _ESCAPES.sub("", text)
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))


def brief(text: str, limit: int = 240) -> str:
    """A message of any tool as one line."""
    line = " ".join(plain_text(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def show_clock(seconds: float) -> str:
    """A duration that is still running; it changes once a second."""
    return show_duration(seconds) if seconds >= 10 else f"{int(seconds)}s"


def shortened(text: str, width: int) -> str:
    """A long text without its middle; cell ids differ most at their ends."""
    if len(text) <= width:
        return text
    width = max(width, 3)
    tail = (width - 1) * 2 // 3
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def named(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def limited(lines: Sequence[str], most: int, more: str) -> Iterator[str]:
    """The first lines, and a line that says how many `more` there are, at its `{}`."""
    yield from lines[:most]
    if len(lines) > most:
        yield more.format(len(lines) - most)


def counted(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
