"""Faults that a test wants to see: what goes wrong, on which route, before or after it was done."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SIGN_IN = b"<!DOCTYPE html><html><title>Azure DevOps Services | Sign In</title></html>"
THROTTLED = (
    "TF400733: The request has been canceled: Request was blocked due to exceeding usage of "
    "resource 'Concurrency' in namespace 'IPAddress'. For more information on why your request "
    'was blocked, see the topic "Rate limits" on the Microsoft Web site.'
)


class When(StrEnum):
    """Relative to the work of the request."""

    BEFORE = "before"
    AFTER = "after"


class Effect(StrEnum):
    """What the client sees."""

    ANSWER = "answer"
    RESET = "reset"
    TRUNCATE = "truncate"
    HANG = "hang"
    HEADERS = "headers"
    """The good reply, with headers added."""


@dataclass
class Fault:
    """One planned fault."""

    route: str
    effect: Effect = Effect.ANSWER
    when: When = When.BEFORE
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json; charset=utf-8"
    every: int = 1
    """Every so many requests of the route, counted from when the fault was planned."""
    times: int = 1
    seen: int = 0

    def strikes(self) -> bool:
        """Whether it hits this request."""
        self.seen += 1
        if self.times <= 0 or self.seen % self.every:
            return False
        self.times -= 1
        return True


class Faults:
    """The plan, and what has happened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: list[Fault] = []
        self.struck: Counter[str] = Counter()
        self.released = threading.Event()
        """Set at the end of a test: hanging replies give up."""

    def plan(self, *faults: Fault) -> None:
        """Add faults."""
        with self._lock:
            self._planned.extend(faults)

    def forget(self) -> None:
        """Nothing is wrong any more."""
        with self._lock:
            self._planned.clear()

    def take(self, route: str) -> Fault | None:
        """The fault for this request, if any."""
        with self._lock:
            struck = [f for f in self._planned if f.route == route and f.strikes()]
            if struck:
                self.struck[route] += 1
            return struck[0] if struck else None


def sign_in_page(route: str) -> Fault:
    """A refused token, as a page under a good status."""
    return Fault(route, status=203, body=SIGN_IN, content_type="text/html; charset=utf-8")
