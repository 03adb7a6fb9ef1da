"""What must hold in every world, at each step and at its end."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import text

from feed.index import INDEX_FILE, SweepIndex
from matrix.digest import tree_digest
from matrix.model import Plan, is_export
from matrix.status import FailureClass, Status
from state.database import Database
from state.leases import MAX_LOST
from state.records import Kind, Outcome
from state.state import State
from tests.fakes.feed import MemoryFeed
from tests.simulation import building
from tests.simulation.world import Machine, Program, World

_FROM_OUTSIDE = {Kind.SEEDED, Kind.UNSEEDED, Kind.RESUMED}
_LOST = "SELECT id, model, owner, data FROM event WHERE kind = 'lost' AND id > :seen ORDER BY id"


class Rules:
    """Looks at each change of the state, and at everything at the end."""

    def __init__(self, world: World, plan: Plan, feed: MemoryFeed, state: State) -> None:
        self.broken: list[str] = []
        self._world = world
        self._plan = plan
        self._feed = feed
        self._state = state
        self._seen = 0
        self._deaths: Counter[str] = Counter()
        self.taken: set[int] = set()
        """The leases (by token) whose holders know that they have them."""
        self._held_up: dict[int, float] = {}
        """Until when a process (by pid) had good reason to be silent."""

    def dies(self, program: Program) -> None:
        """A process is killed: that counts against the models that it holds."""
        for holder in self._state.leases():
            if (holder.host, holder.pid) == (program.machine.name, program.pid):
                self._deaths[holder.model] += 1

    def stalls(self, program: Program, until: float) -> None:
        """A process is stopped: it may lose its leases."""
        self._held_up[program.pid] = until + 60.0

    def bytes_are_lost(self, machine: Machine, what: str) -> None:
        """A build misses bytes that it has pinned: only a disk that lost some is to blame."""
        if machine.intact:
            self.broken.append(f"the store of {machine.name} lost what a build uses: {what}")

    def look(self, database: Database) -> None:
        """After a change of the state."""
        with database.engine.connect() as connection:
            rows = connection.execute(text(_LOST), {"seen": self._seen}).mappings().all()
        for row in rows:
            self._seen = row["id"]
            self._lost(str(row["model"]), str(row["data"]))

    def _lost(self, model: str, data: str) -> None:
        evidence = json.loads(data)
        self._world.say(f"{model} of {evidence['pid']} is lost: {evidence['why']}")
        holder = next(one for one in self._world.programs if one.pid == evidence["pid"])
        excused = self._held_up.get(holder.pid, -1.0) > self._world.seconds
        if not holder.dead and not excused and evidence["token"] in self.taken:
            self.broken.append(f"{holder.pid} lives and lost {model}: {evidence['why']}")

    def open_cells(self) -> dict[str, str]:
        """What is not done, or may be tried again."""
        found = self._state.find_sweep()
        if found is None:
            return {"sweep": "not begun"}
        return {
            one.cell: str(one.status)
            for one in self._state.outcomes(found.id, brief=True)
            if one.status.open
            or one.status is Status.VERIFIED
            or (one.failure is not None and one.failure.may_pass)
        }

    def is_complete(self) -> bool:
        """Whether the last run said so: nothing is open, and the index is in the feed."""
        found = self._state.find_sweep()
        return found is not None and found.exit_code in {0, 1} and not self.open_cells()

    def at_the_end(self) -> list[str]:
        """When all is calm and nothing is left to do."""
        found = self._state.find_sweep()
        assert found is not None
        problems = self._events(found.id)
        outcomes = {one.cell: one for one in self._state.outcomes(found.id)}
        with tempfile.TemporaryDirectory() as folder:
            for item in self._plan.packages():
                one, there = outcomes[item.id], self._feed.find(item.package, item.version)
                right = building.tree_of(item.id, Path(folder))
                if there is not None:
                    held = tree_digest(self._feed.files(item.package, item.version))
                    if not there.tree == held == right:
                        problems.append(f"{item.id} is in the feed with other content")
                if one.status is Status.PUBLISHED:
                    if there is None or one.tree != right:
                        problems.append(f"{item.id} is recorded as the feed does not have it")
                    continue
                if there is not None:
                    problems.append(f"{item.id} is {one.status} and in the feed: {one.message}")
                if one.failure is FailureClass.TIMEOUT and self._held_up:
                    continue  # a process that stood still has used up the time of its publish
                innocent = self._deaths[one.model] < MAX_LOST
                if one.failure is not FailureClass.CRASH or innocent:
                    problems.append(f"{item.id} is {one.status} {one.failure}: {one.message}")
        return problems + self._index(outcomes)

    def _index(self, cells: Mapping[str, Outcome]) -> list[str]:
        """What the newest index lists is what is recorded."""
        listed = list(self._feed.versions(self._plan.index_package))
        if not listed:
            return ["there is no index"]
        newest = max(listed, key=lambda one: (len(one.version), one.version))
        with tempfile.TemporaryDirectory() as folder:
            self._feed.fetch(newest.package, newest.version, Path(folder))
            index = SweepIndex.from_json(Path(folder, INDEX_FILE).read_bytes())
        said = {cell.id: cell.status for cell in index.cells}
        recorded = {one.cell: one.status for one in cells.values() if not is_export(one.cell)}
        return [
            f"the index says otherwise of {name}" for name, _ in recorded.items() ^ said.items()
        ]

    def _events(self, sweep: int) -> list[str]:
        """Who held what when, from the record of it."""
        problems = []
        holders: dict[str, set[int]] = defaultdict(set)
        published: set[str] = set()
        last = 0
        for one in self._state.events(sweep):
            model, cell, held = one.model or "", one.cell or "", holders[one.model or ""]
            if one.kind is Kind.LEASED:
                if held:
                    problems.append(f"{model} has two holders: {one.id} and {held}")
                if one.id <= last:
                    problems.append(f"the token {one.id} of {model} is not newer than {last}")
                last = one.id
                holders[model] = {one.id}
            elif one.kind in {Kind.RELEASED, Kind.LOST}:
                if one.kind is Kind.RELEASED and one.token not in held:
                    problems.append(f"{model} was released under the old {one.token}")
                held -= {one.token}
            elif one.kind is Kind.STATUS and one.token is not None and one.token not in held:
                problems.append(f"{cell} became {one.status} under the old {one.token}")
            elif one.kind in _FROM_OUTSIDE and held:
                problems.append(f"{cell} is held and was {one.kind}")
            elif one.kind is Kind.HANDED_BACK and cell in published:
                problems.append(f"{cell} is published and was planned again")
            if one.status is Status.PUBLISHED:
                published.add(cell)
            elif one.status is not None:
                published.discard(cell)
        return problems
