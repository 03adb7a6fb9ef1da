"""What reservations take of a resource, and what keeps another one waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from machine.entries import Entry, Ticket

SHOWN = 3
WHOLE = 1 << 40


@dataclass(frozen=True, slots=True)
class Want:
    """So much of a resource, which is there if all reservations together stay within `room`."""

    resource: str
    amount: int
    room: int | Callable[[], int]
    words: str
    """What is waited for: `2.00 GB of memory`."""
    alone: bool = False
    """Even too much is granted where nobody else holds any."""


DISTURBS = Want("quiet", 1, WHOLE, "the end of a measurement")
"""For work that would disturb a measurement, and may go on beside other such work."""
UNDISTURBED = Want("quiet", WHOLE, WHOLE, "a quiet machine")
"""For a measurement: nothing that disturbs it runs."""


def reserved(resource: str, entries: Sequence[Entry]) -> int:
    """How much of a resource these participants hold."""
    return sum(
        holding.amounts.get(resource, 0) for entry in entries for holding in entry.held.values()
    )


def ahead_of(wants: Sequence[Want], entries: Sequence[Entry], ticket: Ticket | None = None) -> int:
    """How many wait ahead for any of it; without a ticket, all that wait are ahead."""
    resources = {want.resource for want in wants}
    return sum(
        (ticket is None or one.number < ticket.number) and not resources.isdisjoint(one.resources)
        for entry in entries
        if not entry.silent
        for one in entry.waiting
    )


def lacking_of(wants: Sequence[Want], entries: Sequence[Entry]) -> list[Want]:
    """What of it is not there."""
    lacking = []
    for want in wants:
        taken = reserved(want.resource, entries)
        room = want.room if isinstance(want.room, int) else want.room()
        if taken + want.amount > room and not (want.alone and not _holders(want, entries)):
            lacking.append(want)
    return lacking


def _holders(want: Want, entries: Sequence[Entry]) -> list[str]:
    return [
        f"process {entry.pid}{f' ({holding.what})' if holding.what else ''}"
        for entry in entries
        for holding in entry.held.values()
        if want.resource in holding.amounts
    ]


def signs_of(resources: set[str], entries: Sequence[Entry]) -> object:
    """What changes when anybody begins, ends or gives up."""
    held = {
        (entry.name, key)
        for entry in entries
        for key, holding in entry.held.items()
        if not resources.isdisjoint(holding.amounts)
    }
    return held, {one for entry in entries if not entry.silent for one in entry.waiting}


def words_of(wants: Sequence[Want], ahead: int, entries: Sequence[Entry], trouble: str) -> str:
    """What is waited for, and who has it."""
    text = " and ".join(want.words for want in wants)
    holders = list(dict.fromkeys(name for want in wants for name in _holders(want, entries)))
    if holders:
        more = f" and {len(holders) - SHOWN} more" if len(holders) > SHOWN else ""
        text += f", held by {', '.join(holders[:SHOWN])}{more}"
    if ahead:
        text += f", behind {ahead} other{'s' if ahead > 1 else ''}"
    return f"{text}; other processes are not seen: {trouble}" if trouble else text
