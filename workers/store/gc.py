"""Making room: least recently used actions first, then the bytes that nothing names any more."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from workers.store.actions import Action, Actions
from workers.store.blobs import Blobs


@dataclass(frozen=True, slots=True)
class Eviction:
    """An action that was forgotten; it can be run again from its inputs."""

    key: str
    subject: str
    size: int


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a collection did."""

    evicted: tuple[Eviction, ...]
    freed: int
    kept: int
    pinned: int
    """Actions that were to go but are in use."""


def collect(
    blobs: Blobs, actions: Actions, horizon: float, budget: float, unused_since: float = 0.0
) -> GcReport:
    """Bring the store down to `budget` bytes, sparing what was used since `horizon`; what was not
    used since `unused_since` goes in any case.

    Call it under the gate.
    """
    records, recent = [], set()
    for used, key in sorted(actions.all()):
        record = actions.read(key)
        if record is None:
            actions.remove(key)
            continue
        records.append((used, record))
        if used >= horizon:
            recent.add(key)
    sizes = dict(blobs.all())
    uses = Counter(sha for _used, record in records for sha in _named(record))
    freed = sum(blobs.remove(sha) for sha in sizes if sha not in uses)
    total = sum(size for sha, size in sizes.items() if sha in uses)
    evicted, in_use = [], 0
    for used, record in records:
        if total <= budget and used >= unused_since:
            break
        if record.key in recent:
            in_use += 1
            continue
        actions.remove(record.key)  # the record first: what it names is free to go only then
        for sha in _named(record):
            uses[sha] -= 1
            if not uses[sha]:
                removed = blobs.remove(sha)
                freed += removed
                total -= removed
        evicted.append(Eviction(record.key, record.subject, record.size))
    return GcReport(tuple(evicted), freed, total, in_use)


def _named(record: Action) -> set[str]:
    return {file.sha256 for file in record.files}
