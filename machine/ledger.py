"""One ledger for all processes of the machine: who has reserved how much memory, disk and quiet.

A process reserves a resource before it uses it. If there is not enough, it waits, in the order in
which the waits began, so that no process waits for ever. A process that has ended holds nothing and
is in no queue. One that is stopped keeps what it holds, but those behind it in the queue go first.

Several resources are reserved at once or not at all: whoever waits for one holds none of the
others, so two processes never wait for each other. Where the ledger's folder cannot be used, each
process counts for itself.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from machine.disk import reason
from machine.reservations import (
    Entries,
    Entry,
    Holding,
    Ticket,
    Want,
    ahead_of,
    lacking_of,
    signs_of,
    words_of,
)
from machine.waits import WITHOUT_LIMIT, Cancelled, Wait, WaitedTooLong, WaitRules

POLL = 0.2
"""Seconds between two looks of a wait."""


class Ledger:
    """The ledger as one participant sees it; its threads share it."""

    def __init__(self, root: Path | None = None) -> None:
        self._entries = Entries(root)
        self._own = self._entries.own
        self._changed = threading.Condition()
        self._keys = map(str, itertools.count(1))
        self.changes = 0
        """How often something of ours was given back or given up."""
        self.trouble = ""
        """Why other processes are not seen; empty: they are."""

    def claim(self, wants: Sequence[Want], what: str = "") -> Reservation | None:
        """Reserve all of it if it is there now and nobody waits for any of it."""
        with self.everybody() as entries:
            if ahead_of(wants, entries) or lacking_of(wants, entries):
                return None
            return self.grant(wants, what)

    def reserve(
        self, wants: Sequence[Want], what: str = "", rules: WaitRules = WITHOUT_LIMIT
    ) -> Reservation:
        """Reserve all of it, and wait until it is there.

        Raises `Cancelled`, or `WaitedTooLong` when none of those who hold it or wait ahead has
        changed anything for too long.
        """
        reservation = self.claim(wants, what)
        if reservation is None:
            with self.queue(wants, what) as place:
                wait = Wait(rules)
                while (reservation := place.claim(wants)) is None:
                    place.pause(wait)
        return reservation

    @contextmanager
    def queue(self, wants: Sequence[Want], what: str = "") -> Iterator[Place]:
        """A place in the queue for these resources, behind all that wait now."""
        with self.everybody() as entries:
            numbers = [ticket.number for entry in entries for ticket in entry.waiting]
            resources = frozenset(want.resource for want in wants)
            ticket = Ticket(max(numbers, default=0) + 1, what, resources)
            self._own.waiting.append(ticket)
            self._write()
        try:
            yield Place(self, ticket)
        finally:
            with self._changed:
                self._own.waiting.remove(ticket)
                self._tell_change()

    @contextmanager
    def everybody(self) -> Iterator[Sequence[Entry]]:
        """All participants, us first; nobody reserves anything meanwhile."""
        with self._changed, ExitStack() as alone:
            others: list[Entry] = []
            try:
                alone.enter_context(self._entries.alone())
                others = self._entries.others()
                self.trouble = ""
            except OSError as error:
                self.trouble = reason(error)
            yield (self._own, *others)

    def grant(self, wants: Sequence[Want], what: str) -> Reservation:
        """Reserve without asking; call it inside `everybody`."""
        key = next(self._keys)
        self._own.held[key] = Holding(what, {want.resource: want.amount for want in wants})
        self._write()
        return Reservation(self, key)

    def release(self, key: str) -> None:
        """Give a reservation back."""
        with self._changed:
            if self._own.held.pop(key, None) is not None:
                self._tell_change()

    def pause(self, changes: int) -> None:
        """Wait for more changes than that, or until it is time to look at other processes."""
        with self._changed:
            with suppress(OSError):
                self._entries.look()
            if self.changes == changes:
                self._changed.wait(POLL)

    def _tell_change(self) -> None:
        self.changes += 1
        self._write()
        self._changed.notify_all()

    def _write(self) -> None:
        try:
            self._entries.write()
        except OSError as error:
            self.trouble = reason(error)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Held until it is released, or the block under it or its process ends."""

    _ledger: Ledger
    _key: str

    def release(self) -> None:
        """Give it back; a second time does no harm."""
        self._ledger.release(self._key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


@dataclass(slots=True)
class Place:
    """A place in the queue, with what was seen at the last look."""

    _ledger: Ledger
    _ticket: Ticket
    first: bool = False
    """Whether nobody is ahead who waits for any of the same resources."""
    _words: str = ""
    _signs: object = None
    _changes: int = 0

    def claim(self, wants: Sequence[Want]) -> Reservation | None:
        """Reserve all of it if nobody is ahead and it is there."""
        with self._ledger.everybody() as entries:
            ahead, lacking = ahead_of(wants, entries, self._ticket), lacking_of(wants, entries)
            self.first = not ahead
            if self.first and not lacking:
                return self._ledger.grant(wants, self._ticket.what)
            resources = {want.resource for want in wants}
            self._signs, self._changes = signs_of(resources, entries), self._ledger.changes
            self._words = words_of(lacking or wants, ahead, entries, self._ledger.trouble)
        return None

    def pause(self, wait: Wait, signs: object = None) -> None:
        """Wait until something may have changed; `signs`: signs of life unknown to the ledger.

        Raises `Cancelled` or `WaitedTooLong`.
        """
        if wait.rules.cancel is not None and wait.rules.cancel.is_set():
            raise Cancelled(f"cancelled while waiting for {self._words}")
        if wait.is_over((self._signs, signs), self._words):
            raise WaitedTooLong(
                f"waited {wait.rules.limit:.0f} s for {self._words}, and nothing has changed",
                hint="end the process that is stopped or hangs",
            )
        self._ledger.pause(self._changes)
