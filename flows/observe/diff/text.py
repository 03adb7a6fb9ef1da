"""A comparison as text: the most important changes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from flows.observe.diff.comparison import Change, ChangeKind, Comparison, Side
from flows.output.quantity import brief, limited, show_duration, show_size

_MOST_SHOWN = 50
_MOST_CAUSES = 6


def lines(comparison: Comparison, *, everything: bool = False) -> Iterator[str]:
    """The changes of every kind; unchanged cells are only counted."""
    limit = None if everything else _MOST_SHOWN
    for verdict in ChangeKind:
        changes = comparison.of(verdict)
        if changes and verdict is not ChangeKind.UNCHANGED:
            yield f"{verdict} ({len(changes)})"
            yield from _listed(changes, facts, limit)
    if measured := comparison.measured:
        yield f"latency ({len(measured)} measured in both)"
        yield from _listed(measured, lambda change: map(str, change.latency), limit)
    if again := comparison.verified_again:
        yield f"verified again ({len(again)})"
        yield from _listed(again, lambda change: [change.again], limit)
    counts = [f"{count} {verdict}" for verdict, count in comparison.counts().items() if count]
    yield f"{comparison.before} -> {comparison.after}: {', '.join(counts) or 'no cells'}"


def _listed(
    changes: list[Change], told: Callable[[Change], Iterable[str]], limit: int | None
) -> Iterator[str]:
    for change in changes[:limit]:
        yield f"  {change.cell}"
        yield from (f"    {line}" for line in told(change))
    if (more := len(changes[limit:]) if limit else 0) > 0:
        yield f"  ... and {more} more: --all or --json"


def facts(change: Change) -> Iterator[str]:
    """Why a cell differs, as far as it is known."""
    before, after = change.before, change.after
    if after is not None and after.failure:
        yield brief(f"{after.failure}: {after.message or ''}", 200)
    elif before is not None and before.failure and after is not None:
        yield f"was {before.failure}, is {after.status}"
    yield from change.weaker
    yield from limited([*map(str, change.inputs)], _MOST_CAUSES, "... and {} more inputs")
    if change.note:
        yield change.note
    if before is not None and after is not None and change.verdict is ChangeKind.CHANGED:
        yield from deltas(before, after)


def deltas(before: Side, after: Side) -> Iterator[str]:
    """Size, time and measured numbers, where they differ."""
    if before.samples and after.samples and before.samples != after.samples:
        yield f"verified on {before.samples} -> {after.samples}"
    if before.bytes and after.bytes:
        was, now = show_size(before.bytes), show_size(after.bytes)
        if was != now:
            yield f"size {was} -> {now} ({_ratio(before.bytes, after.bytes)})"
    if before.seconds and after.seconds:
        was, now = show_duration(before.seconds), show_duration(after.seconds)
        if was != now:
            yield f"time {was} -> {now} ({_ratio(before.seconds, after.seconds)})"
    for name in sorted(before.measures.keys() & after.measures.keys()):
        first, second = before.measures[name], after.measures[name]
        if first != second:
            yield f"{name} {first:.6g} -> {second:.6g}"


def _ratio(was: float, now: float) -> str:
    return f"{100 * (now - was) / was:+.1f}%"
