"""What a summary tells: the counts and failures of a sweep, and every cell in short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.exports import is_export
from flows.summary import Summary, summarize
from state.ledger import State
from state.records import Outcome, SweepInfo

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Told:
    """A sweep for machines and dashboards."""

    info: SweepInfo
    summary: Summary
    outcomes: Sequence[Outcome]
    """Cells and exports, in the order of their ids."""

    @property
    def seconds(self) -> float | None:
        """Of the last run; None while it runs."""
        if self.info.ended_at is None:
            return None
        return round(max(0.0, self.info.ended_at - self.info.begun_at), 3)

    def to_json(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {
            "schema": SCHEMA,
            **self.summary.to_json(),
            "begun_at": self.info.begun_at,
            "ended_at": self.info.ended_at,
            "seconds": self.seconds,
            "exit_code": self.info.exit_code,
            "outcomes": [_cell(one) for one in self.outcomes],
        }


def tell(state: State, info: SweepInfo) -> Told:
    """Read a sweep."""
    fresh = state.find_sweep(info.stamp, info.feed) or info
    outcomes = list(state.outcomes(fresh.id))
    summary = summarize(fresh.stamp, fresh.feed, outcomes, publish=fresh.publish)
    return Told(fresh, summary, outcomes)


def _cell(one: Outcome) -> Mapping[str, Any]:
    return {
        "id": one.cell,
        "kind": "export" if is_export(one.cell) else "cell",
        "status": str(one.status),
        "precision": one.precision,
        "package": one.package,
        "version": str((one.detail or {}).get("same_as", one.version)),
        "tree": one.tree,
        "bytes": one.bytes,
        "seconds": one.seconds,
        "attempts": one.attempts,
        "class": str(one.failure) if one.failure else None,
        "stage": one.stage,
        "message": one.message,
        "hint": one.hint,
    }
