"""Where the wall time of a worker slot goes in the demo sweep, once caches are warm.

    python -m tests.bench.demo [CATALOG] [-- SWEEP ARGUMENTS]       default: demo

The catalog is swept twice, each time into a home of its own: the first sweep warms the caches of
the operating system, the second is looked at. All numbers are from its state: a slot's wall time
is from its first lease to its last release, the time in stages that of the stages which really
ran for its models. The goal: at least 75% of each slot's wall time inside stages.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from matrix.status import Status
from state.records import Event, Kind
from state.state import State, open_state
from tests.bench.command import modelmill, table

GOAL = 0.75


@dataclass(slots=True)
class Slot:
    """What one slot did with its time, in seconds."""

    begun: float
    ended: float = 0.0
    stages: float = 0.0
    verifying: float = 0.0
    cells: int = 0

    @property
    def wall(self) -> float:
        """From the first lease to the last release."""
        return self.ended - self.begun

    def row(self, name: str) -> tuple[object, ...]:
        """For the table."""
        rest = self.wall - self.stages - self.verifying
        shares = [f"{part / self.wall:.2f}" for part in (self.stages, self.verifying, rest)]
        return (
            name,
            self.cells,
            f"{self.wall:.1f}",
            *shares,
            f"{self.stages / self.wall / GOAL:.2f}",
        )


def slots_of(state: State, stamp: str) -> dict[str, Slot]:
    """By owner."""
    info = state.find_sweep(stamp)
    assert info is not None
    events = _events(state, info.id)
    slots: dict[str, Slot] = {}
    holder: dict[str, str] = {}
    verifying: dict[str, float] = {}
    for event in events:
        owner = event.owner or ""
        if event.kind is Kind.LEASED and event.model:
            slots.setdefault(owner, Slot(event.at))
            holder[event.model] = owner
        elif event.kind is Kind.RELEASED:
            slots[owner].ended = event.at
        if event.cell and event.status is Status.VERIFYING:
            verifying[event.cell] = event.at
        elif event.cell and event.status is Status.VERIFIED and event.cell in verifying:
            slots[owner].verifying += event.at - verifying.pop(event.cell)
            slots[owner].cells += 1
    seconds: dict[str, float] = defaultdict(float)
    for run in state.stage_runs(info.id):
        if not run.reused:
            seconds[holder[run.model]] += run.seconds
    for owner, spent in seconds.items():
        slots[owner].stages = spent
    return slots


def _events(state: State, sweep_id: int) -> list[Event]:
    return list(state.events(sweep_id))


def main(catalog: str, arguments: list[str]) -> None:
    """Sweep twice, look at the second."""
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name)
        for home in ("cold", "warm"):
            command = ("sweep", catalog, "--stamp", "1", "--home", home, *arguments)
            print(f"{home}: {modelmill(folder, *command).seconds:.1f} s for the whole command")
        with open_state(folder / "warm" / "state.db") as state:
            slots = slots_of(state, "1")
    header = ("slot", "cells", "wall s", "stages", "verifying", "rest", "of goal")
    table([header, *(slot.row(name.rpartition("/")[2]) for name, slot in sorted(slots.items()))])


if __name__ == "__main__":
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    main(given[0] if split else "demo", given[split + 1 :])
