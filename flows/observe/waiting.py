"""Why a sweep of a fleet stands still, read from its state alone.

The parent notes in the state what no worker alive may be given; until a parent has taken an order
up, nothing is noted at all, and that too can be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.fleet.run import FLEET
from flows.sweep.recorded_plan import PLAN
from state.damage import Tolerated
from state.records import Event, Kind

if TYPE_CHECKING:
    from state.ledger import State

UNSERVED = "unserved"
"""Key of the notice: one entry for each group of models that nobody alive can build, and for each
kind of machine whose slots fail at once."""

NOT_TAKEN_UP = "no worker has taken the order up yet: does a modelmill worker run in its pool?"
_PAGE = 1000
_SHOWN = 3
_FLAGS = {"remote-code": "--allow-remote-code", "pickle": "--allow-pickle"}
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What keeps the last run of a sweep from building."""

    fleet: bool = False
    """Whether the last run is one of a fleet."""
    ordered_at: float | None = None
    """Set: ordered from a fleet, and no parent has begun."""
    unserved: Sequence[Json] = ()

    def lines(self) -> list[str]:
        """For people; empty: nothing that the state knows of."""
        if self.ordered_at is not None:
            return [NOT_TAKEN_UP]
        with Tolerated("a notice of what waits for a machine"):
            return [line for group in self.unserved for line in (_what(group), _next(group))]
        return []


def waiting(state: State, sweep: int) -> Waiting:
    """Look at the last run of a sweep."""
    begun = _last(state.events(sweep, kind=Kind.BEGUN))
    if begun is None:
        return Waiting()
    started = _last(state.events(sweep, kind=Kind.STARTED))
    fleet = started is not None and FLEET in (started.data or {})
    notices = list(_notices(state, sweep, begun.id))
    # Whoever leads a run notes its plan when it begins; who only orders one does not.
    if fleet and not any(PLAN in notice for notice in notices):
        return Waiting(fleet, begun.at)
    told = [notice[UNSERVED] for notice in notices if UNSERVED in notice]
    return Waiting(fleet, unserved=told[-1] if told else ())


def one_line(unserved: Sequence[Json]) -> str:
    """The same beside a progress bar."""
    return "; ".join(map(_what, unserved))


def _what(group: Json) -> str:
    if "ends" in group:
        return f"slots fail as soon as they begin: {group['ends']}"
    names = [str(name) for name in group.get("models", ())]
    count = int(group.get("count", len(names)))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if count > len(names[:_SHOWN]) else "")
    models = "1 model waits" if count == 1 else f"{count} models wait"
    missing = group.get("missing", group.get("needs", ()))
    if not group.get("machines", 1):
        return f"{models}: no worker is alive ({shown})"
    return f"{models}: no worker alive has {' and '.join(map(str, missing))} ({shown})"


def _next(group: Json) -> str:
    if "ends" in group:
        words = " ".join(map(str, group.get("needs", ())))
        return f"  next: mend the machine with {words}; it is tried again now and then"
    lacks = group.get("missing", group.get("needs", ()))
    flags = " ".join(flag for word, flag in _FLAGS.items() if word in lacks)
    words = " ".join(str(word) for word in group.get("needs", ()) if word not in _FLAGS)
    start = " ".join(filter(None, ("start modelmill worker", flags)))
    return f"  next: {start} on a machine with {words}"


def _last(events: Sequence[Event]) -> Event | None:
    return events[-1] if events else None


def _notices(state: State, sweep: int, after: int) -> Iterable[Json]:
    while page := state.events(sweep, after, _PAGE, kind=Kind.NOTICE):
        after = page[-1].id
        yield from (one.data for one in page if one.data)
