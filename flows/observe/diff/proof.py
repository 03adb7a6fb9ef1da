"""What verification proved of a cell in one sweep and not in the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from matrix.verification import RUNGS

Json = Mapping[str, Any]


def weaker(before: Json | None, after: Json | None) -> Iterator[str]:
    """What held before and is not shown any more; nothing where one side was not verified."""
    old, new = _rungs(before), _rungs(after)
    if not old or not new:
        return
    for name in RUNGS:
        if old.get(name, {}).get("passed") is True and new.get(name, {}).get("passed") is not True:
            yield f"verification: {name} passed -> {_stand(new.get(name))}"
    if _ran_on_own(before) and not _ran_on_own(after):
        yield "verification: ran on the target's own execution provider -> did not"


def _rungs(evidence: Json | None) -> dict[str, Json]:
    told = (evidence or {}).get("rungs") or ()
    return {str(one.get("name")): one for one in told if isinstance(one, Mapping)}


def _stand(rung: Json | None) -> str:
    if rung is None:
        return "not tried"
    if rung.get("waived"):
        return f"waived: {rung['waived']}"
    why = f": {rung['detail']}" if rung.get("detail") else ""
    return ("could not be run" if rung.get("passed") is None else "does not hold") + why


def _ran_on_own(evidence: Json | None) -> bool:
    told = (evidence or {}).get("runtimes") or ()
    return any(isinstance(one, Mapping) and one.get("own") and one.get("ran") for one in told)
