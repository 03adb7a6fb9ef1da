"""Reading the evidence of verification that was recorded for a cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from matrix.verification import RUNGS
from state import damage
from state.records import Outcome

Json = Mapping[str, Any]


def rungs_of(one: Outcome) -> list[dict[str, Any]]:
    """The rungs as they were recorded, without damaged ones."""
    rungs = (one.evidence or {}).get("rungs", [])
    found = [rung for rung in rungs if isinstance(rung, dict)] if isinstance(rungs, list) else []
    if not isinstance(rungs, list) or len(found) < len(rungs):
        damage.note(f"evidence of {one.cell}: rungs")
    return found


def level_of(rungs: Iterable[Json]) -> str | None:
    """The highest rung that holds with all below it; None: nothing was verified here."""
    known = {str(rung.get("name")): rung for rung in rungs}
    level = None
    for name in RUNGS:
        rung = known.get(name, {})
        if rung.get("passed") is not True and not rung.get("waived"):
            break
        level = name
    return level


def weaker(before: Json | None, after: Json | None) -> Iterator[str]:
    """What verification proved before and no longer proves; nothing if one side has no evidence."""
    old, new = _by_name(before), _by_name(after)
    if not old or not new:
        return
    for name in RUNGS:
        if old.get(name, {}).get("passed") is True and new.get(name, {}).get("passed") is not True:
            yield f"verification: {name} passed -> {_finding(new.get(name))}"
    if _ran_on_own(before) and not _ran_on_own(after):
        yield "verification: ran on the target's own execution provider -> did not"


def _by_name(evidence: Json | None) -> dict[str, Json]:
    rungs = (evidence or {}).get("rungs") or ()
    return {str(one.get("name")): one for one in rungs if isinstance(one, Mapping)}


def _finding(rung: Json | None) -> str:
    if rung is None:
        return "not tried"
    if rung.get("waived"):
        return f"waived: {rung['waived']}"
    why = f": {rung['detail']}" if rung.get("detail") else ""
    return ("could not be run" if rung.get("passed") is None else "does not hold") + why


def _ran_on_own(evidence: Json | None) -> bool:
    runtimes = (evidence or {}).get("runtimes") or ()
    return any(isinstance(one, Mapping) and one.get("own") and one.get("ran") for one in runtimes)
