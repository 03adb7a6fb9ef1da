"""The parent of a fleet's sweep: begin, keep slots coming while work remains, finish.

It builds nothing and may die: the slots go on and record, and another resume takes its place.
There is one at a time: the one that began last leads, an older one steps down. A parent whose
worker drains, or was killed, has another one started elsewhere and ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

from feed.publisher import Publisher
from flows.cli.settings import Settings
from flows.fleet.needs import Words, groups_of, lacking, serves
from flows.fleet.orders import Orders
from flows.fleet.ticket import Ticket, write_ticket
from flows.fleet.watch import StoppedElsewhere, end_for_all
from flows.observe.summary import Summary, summarize
from flows.observe.waiting import UNSERVED
from flows.sweep.lifecycle import Begun, begin, finish
from flows.sweep.planning import selection_of
from flows.sweep.stop import Stop
from flows.sweep.workspace import Workspace
from state.ledger import State
from state.records import Kind

INTERVAL = 2.0
LATELY = 120.0
"""Seconds after a lease in which the sweep counts as busy."""
LEADS = "leads"
"""Key of the notice with which a parent takes the lead."""

HAND_OVERS = 150
"""Times, five minutes, that a server that restarts is asked for another parent, when this one has
to go: a sweep that nobody leads comes to its end by hand only."""


class Ended(Enum):
    """Why a parent leads no more."""

    OVER = auto()
    """Nothing is left to do, or everybody is to stop: it has the last word."""
    REPLACED = auto()
    """A newer parent leads."""
    LEFT = auto()
    """Its worker ends; another parent was asked for."""


class Hands(Protocol):
    """What the parent wants of `Crew`."""

    def queues(self) -> dict[str, Words]:
        """Served queues and what their workers announce."""

    def look(self) -> None:
        """Refresh the counts."""

    def fill(self, queue: str, demand: int, *, busy: bool = False) -> None:
        """Submit slot runs; `busy`: models are being handed out, by whichever queue."""

    def stumbling(self) -> Mapping[str, str]:
        """Queues whose slots fail as soon as they begin, with what the last one said."""

    def dismiss(self) -> None:
        """Cancel what waits."""

    def hand_over(self) -> None:
        """Have another parent started."""


@dataclass(slots=True)
class Parent:
    """One run of a sweep."""

    state: State
    ticket: Ticket
    settings: Settings
    stop: Stop
    away: tuple[type[Exception], ...] = ()
    """What `Hands` raises while the Prefect server is away: slots do without it, and so do we."""
    orders: Orders | None = None
    """Of the worker it runs on."""
    _told: object = field(default=None)
    _since: int = 0
    """The notice with which it took the lead."""
    _leased: int = 0
    """The last lease that was seen, and when."""
    _leased_at: float = float("-inf")
    _leaving: int = 0
    """How often it has asked for another parent."""

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
            # Whoever ordered the run has taken up what failed; another parent does not do it again.
            again=not self.ticket.run,
        )
        ticket = replace(self.ticket, sweep=begun.info.id, newest=begun.newest)
        if ticket.newest or not ticket.run:
            ticket = replace(ticket, run=write_ticket(self.state, ticket))
        return begun, ticket

    def lead(self, ticket: Ticket, hands: Hands) -> Ended:
        """Take the lead until the end; what still waits then is sent away."""
        mark = {LEADS: ticket.run, "pid": os.getpid()}
        self._since = self.state.note(ticket.sweep, Kind.NOTICE, mark)
        ended = Ended.OVER
        try:
            ended = self.supervise(ticket, hands)
        finally:
            if ended is Ended.OVER:
                with suppress(*self.away):
                    hands.dismiss()
                # Told twice, a resume that has begun in between would take it for itself.
                if self.stop and not isinstance(self.stop.error, StoppedElsewhere):
                    end_for_all(self.state, ticket.sweep, self.stop.error)
        return ended

    def supervise(self, ticket: Ticket, hands: Hands) -> Ended:
        """Until nothing is open, or a stop, or the lead is another's."""
        while not self.stop:
            if self._replaced(ticket.sweep):
                return Ended.REPLACED
            if self.orders is not None and self.orders.draining and self._left(hands):
                return Ended.LEFT
            groups = groups_of(ticket.plan, ticket.values, self.state.history())
            demand = self._demand(ticket.sweep, groups)
            if demand is None:
                return Ended.OVER
            with suppress(*self.away):  # the next round asks again
                self._keep(ticket.sweep, hands, groups, demand)
            self.stop.wait(INTERVAL)
        return Ended.OVER

    def _replaced(self, sweep: int) -> bool:
        notices = self.state.events(sweep, self._since, kind=Kind.NOTICE)
        return any(LEADS in (one.data or {}) for one in notices)

    def _busy(self, sweep: int) -> bool:
        """Whether a model was handed out lately: slots that die of their models did begin well."""
        if found := self.state.events(sweep, self._leased, kind=Kind.LEASED):
            self._leased, self._leased_at = found[-1].id, time.monotonic()
        return time.monotonic() - self._leased_at < LATELY

    def _left(self, hands: Hands) -> bool:
        """Whether another parent is under way, or nobody can be asked for one."""
        self._leaving += 1
        with suppress(*self.away):
            hands.hand_over()
            return True
        return self._leaving >= HAND_OVERS

    def finish(self, begun: Begun, ticket: Ticket) -> tuple[Summary, str | None]:
        """Index, summary and exit code."""
        feed = Workspace(self.settings).open_feed()
        if self.stop and self._begun_again(ticket.sweep):
            outcomes = self.state.outcomes(ticket.sweep, brief=True)
            name, publish = ticket.plan.stamp, begun.info.publish
            return summarize(name, feed.name, outcomes, publish=publish), None
        publisher = Publisher(feed, tries=self.settings.tries) if begun.info.publish else None
        template = self.settings.package
        return finish(ticket.plan, self.state, feed, publisher, begun.info, self.stop, template)

    def _begun_again(self, sweep: int) -> bool:
        """Whether somebody has ordered the sweep anew: its end is not ours to tell."""
        return bool(self.state.events(sweep, self._since, 1, kind=Kind.BEGUN))

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
        busy = self._busy(sweep)
        for queue, words in queues.items():
            wanted = sum(n for needs, n in demand.items() if serves(words, needs))
            hands.fill(queue, wanted, busy=busy)
        unserved: list[dict[str, object]] = [
            {
                "needs": sorted(needs),
                "missing": lacking(queues.values(), needs),
                "machines": len(queues),
                "models": sorted(groups[needs])[:5],
                "count": count,
            }
            for needs, count in demand.items()
            if count and not any(serves(words, needs) for words in queues.values())
        ]
        unserved += [
            {"ends": message, "needs": sorted(queues[queue])}
            for queue, message in sorted(hands.stumbling().items())
            if queue in queues
        ]
        if unserved != (self._told or []):
            self._told = unserved
            self.state.note(sweep, Kind.NOTICE, {UNSERVED: unserved})
