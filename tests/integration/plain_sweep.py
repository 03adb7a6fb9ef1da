"""`modelmill` with the slots run without Prefect; everything else is the real command."""

from __future__ import annotations

import os

import flows.run
from feed.publisher import Publisher
from flows.engines import slot_count
from flows.follower import Follower
from flows.local import workshop
from flows.planned import foretold
from flows.slot import run_plainly, run_slots
from flows.stop import Stop
from flows.sweep import Begun
from flows.tally import Tally
from flows.views import choose_view
from flows.workspace import Workspace
from state.ledger import State
from state.records import Kind


class PlainRun(flows.run.Run):
    """Leaves out the server and the flow run."""

    def _build(
        self,
        work: Workspace,
        state: State,
        begun: Begun,
        publisher: Publisher | None,
        stop: Stop,
    ) -> None:
        tally = Tally(
            state.statuses(begun.info.id),
            publish=begun.info.publish,
            slots=slot_count(self.settings),
            known=foretold(state, begun.info.id),
        )
        after = state.note(begun.info.id, Kind.STARTED, {"pid": os.getpid()})
        after = self._settle(state, begun, tally, after, stop)
        with (
            workshop(self.plan, begun, state, self.settings, publisher, stop) as opened,
            Follower(state, begun.info.id, choose_view(as_json=self.as_json), tally, after),
        ):
            run_slots(opened.shop, opened.benches, run_plainly)


if __name__ == "__main__":
    # Before the commands import it by name.
    flows.run.Run = PlainRun  # type: ignore[misc]
    from flows.cli import entry

    entry()
