"""The parent of a fleet's sweep: begin, keep slots coming while work remains, finish.

It builds nothing and may die: the slots go on and record, and another resume takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from feed.publisher import Publisher
from flows.fleet.needs import Words, groups_of, serves
from flows.fleet.ticket import Ticket, write_ticket
from flows.planning import selection_of
from flows.settings import Settings
from flows.stop import Stop
from flows.summary import Summary
from flows.sweep import Begun, begin, finish
from flows.workspace import Workspace
from state.ledger import State
from state.records import Kind

INTERVAL = 2.0
UNSERVED = "unserved"
"""Key of the notice that says what nobody alive can build."""


class Hands(Protocol):
    """What the parent wants of `Crew`."""

    def queues(self) -> dict[str, Words]:
        """Served queues and what their workers announce."""

    def look(self) -> None:
        """Refresh the counts."""

    def fill(self, queue: str, demand: int) -> None:
        """Submit slot runs."""

    def dismiss(self) -> None:
        """Cancel what waits."""


@dataclass(slots=True)
class Parent:
    """One run of a sweep."""

    state: State
    ticket: Ticket
    settings: Settings
    stop: Stop
    away: tuple[type[Exception], ...] = ()
    """What `Hands` raises while the Prefect server is away: slots do without it, and so do we."""
    _told: object = field(default=None)

    def begin(self) -> tuple[Begun, Ticket]:
        """Record and seed; the ticket that slots are given knows what the feed has."""
        feed = Workspace(self.settings).open_feed()
        begun = begin(
            self.ticket.plan,
            self.state,
            feed,
            self.settings,
            recorded={**self.ticket.values, "feed": feed.name},
            selection=selection_of(self.settings).to_json(),
            stop=self.stop,
        )
        ticket = replace(self.ticket, sweep=begun.info.id, newest=begun.newest)
        if ticket.newest or not ticket.run:
            ticket = replace(ticket, run=write_ticket(self.state, ticket))
        return begun, ticket

    def supervise(self, ticket: Ticket, hands: Hands) -> None:
        """Until nothing is open, or a stop."""
        while not self.stop:
            groups = groups_of(ticket.plan, ticket.values, self.state.history())
            demand = self._demand(ticket.sweep, groups)
            if demand is None:
                return
            with suppress(*self.away):  # the next round asks again
                self._keep(ticket.sweep, hands, groups, demand)
            self.stop.wait(INTERVAL)

    def dismiss(self, hands: Hands) -> None:
        """No slot run is to start any more."""
        with suppress(*self.away):
            hands.dismiss()

    def finish(self, begun: Begun, ticket: Ticket) -> tuple[Summary, str | None]:
        """Index, summary and exit code."""
        feed = Workspace(self.settings).open_feed()
        publisher = Publisher(feed, tries=self.settings["tries"]) if begun.info.publish else None
        template = self.settings["package"]
        return finish(ticket.plan, self.state, feed, publisher, begun.info, self.stop, template)

    def _demand(
        self, sweep: int, groups: Mapping[Words, frozenset[str]]
    ) -> dict[Words, int] | None:
        """Models to be handed out, by what they need; None: nothing is open at all."""
        remaining = {needs: self.state.remaining(sweep, names) for needs, names in groups.items()}
        if not any(one.open for one in remaining.values()):
            return None
        if not any(one.todo for one in remaining.values()):
            # A lost lease is taken back when somebody asks for work; somebody has to.
            lost = any(holder.expired for holder in self.state.leases(sweep))
            return {needs: int(lost and one.leased > 0) for needs, one in remaining.items()}
        return {needs: one.todo for needs, one in remaining.items()}

    def _keep(
        self,
        sweep: int,
        hands: Hands,
        groups: Mapping[Words, frozenset[str]],
        demand: Mapping[Words, int],
    ) -> None:
        queues = hands.queues()
        hands.look()
        for queue, words in queues.items():
            hands.fill(queue, sum(n for needs, n in demand.items() if serves(words, needs)))
        unserved = [
            {"needs": sorted(needs), "models": sorted(groups[needs])[:5], "count": count}
            for needs, count in demand.items()
            if count and not any(serves(words, needs) for words in queues.values())
        ]
        if unserved != (self._told or []):
            self._told = unserved
            self.state.note(sweep, Kind.NOTICE, {UNSERVED: unserved})
