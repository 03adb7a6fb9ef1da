"""Turns HTTP replies of the service into errors: the one place that reads status and headers.

The SDK's exceptions carry neither status nor headers, so replies are judged here before the
SDK sees them. A reply that does not clearly say "absent" never becomes "absent".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from feed.errors import FeedError, NotFound, Rejected, Unauthorized, Unavailable, VersionExists
from matrix.codec import parse_json


class TokenRefused(Unauthorized):
    """The token is expired or unknown; another one may work."""


class PackageAbsent(NotFound):
    """The feed answers that it has no such package or version (or that it was deleted)."""


class FeedAbsent(NotFound):
    """There is no such feed, project or organization, or it is hidden from us."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply, read to its end."""

    method: str
    url: str
    """Without its query: it may be shown."""
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """Seconds the service asks us to wait; it does so on good replies too."""
        return _seconds(self.headers.get("Retry-After"))

    @property
    def is_page(self) -> bool:
        """Whether it is a page for a browser."""
        kind = self.headers.get("Content-Type", "").lower()
        return "html" in kind or self.body.lstrip()[:1] == b"<"


def judge(reply: Reply) -> FeedError | None:
    """The error that a reply stands for; None: it succeeded."""
    if reply.status in {203, 401} or 300 <= reply.status < 400:
        # A refused token is answered with 401, with a sign-in page under 203, or by sending
        # us to that page; each of them has been seen.
        return TokenRefused(f"{_place(reply)} asks to sign in{_said(reply)}")
    if reply.status < 300:
        return _judge_success(reply)
    return _judge_failure(reply)


def _judge_failure(reply: Reply) -> FeedError:
    text = f"{_place(reply)} answers {reply.status}{_said(reply)}"
    if reply.status == 403:
        return Unauthorized(text)
    if reply.status == 404:
        return _judge_missing(reply)
    if reply.status == 409:
        return VersionExists(text)
    if reply.status in {408, 429} or reply.status >= 500:
        if reply.status == 429 or is_throttled(text):
            text = f"throttled: {text}"
        pause = reply.retry_after
        if pause is None:
            return Unavailable(text)
        asked = f"it asks for a pause of {pause:.0f} s"
        again = f"wait {pause:.0f} s, then run the same command again"
        return Unavailable(f"{text}; {asked}", hint=again, retry_after=pause)
    return Rejected(text)


def is_throttled(text: str) -> bool:
    """Whether a text is that of throttling; it comes with 429, but with 500 as well."""
    return "TF400733" in text or "exceeding usage of resource" in text


_FEED_KEYS = re.compile(r"(Feed\w*|Project\w*|Organization\w*|HostDoesNotExist)Exception$")
_PACKAGE_KEYS = re.compile(r"(Package|Version|PackageVersion)\w*(NotFound|Deleted)\w*Exception$")


def _judge_missing(reply: Reply) -> FeedError:
    key = wrapped(reply.body).get("typeKey") or ""
    if _PACKAGE_KEYS.match(key):
        return PackageAbsent(f"{_place(reply)}: not there{_said(reply)}")
    if _FEED_KEYS.match(key):
        return FeedAbsent(f"{_place(reply)}: no such feed or project{_said(reply)}")
    # A proxy's page or a wrong host: it must never make a feed look empty.
    return Unavailable(f"{_place(reply)} answers 404 without saying what is missing{_said(reply)}")


def _judge_success(reply: Reply) -> FeedError | None:
    if reply.status == 204 or (not reply.body and reply.method != "OPTIONS"):
        return None
    if reply.is_page:
        return Unavailable(f"{_place(reply)} returned a web page instead of data")
    try:
        data = parse_json(reply.body)
    except ValueError:
        return Unavailable(f"{_place(reply)} returned invalid data (truncated?)")
    if isinstance(data, dict) and isinstance(data.get("value"), list) and "count" in data:
        listed = len(data["value"])
        if data["count"] != listed:
            return Unavailable(
                f"{_place(reply)} lists {listed} items and says it has {data['count']}"
            )
    if reply.method == "OPTIONS" and not (isinstance(data, dict) and data.get("value")):
        # The SDK would remember that for as long as the process lives.
        return Unavailable(f"{_place(reply)} returned no routes")
    return None


def wrapped(body: bytes) -> dict[str, Any]:
    """The service's error record; empty where the body is something else."""
    try:
        data = parse_json(body)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _place(reply: Reply) -> str:
    return f"{reply.method} {reply.url}"


def _said(reply: Reply) -> str:
    """The server's own words, on one line and not too many."""
    text = wrapped(reply.body).get("message")
    if not isinstance(text, str):
        text = "" if reply.is_page else reply.body[:300].decode(errors="replace")
    text = " ".join(text.split())[:300]
    return f": {text}" if text else ""


def _seconds(value: str | None) -> float | None:
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
