"""Cells of one model that need other machines: leased apart, held side by side.

The words are made up: nothing in the state knows what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from matrix.status import Status
from state.errors import LeaseLost, StateError
from state.records import CellRow, Facts, Remaining
from state.state import State
from tests.states.samples import (
    ALIVE,
    DEAD,
    FOREIGN,
    TREE,
    begin,
    cell,
    model,
    rows,
    status,
)

PORTABLE = frozenset({"engine:fake"})
COMPILED = frozenset({"engine:fake", "compile:htp73"})
MEASURED = frozenset({"engine:fake", "quiet", "memory:8"})
ANYWHERE = PORTABLE
BOARD = COMPILED | {"os:windows"}
LAB = frozenset({"engine:fake", "quiet", "memory:16"})


def compiled(number: int = 0) -> str:
    return f"{cell(number)}+htp73"


def measured(number: int = 0) -> str:
    return f"{cell(number)}+htp73:bench"


def cells(models: int = 1, *, stamp: str = "20260609") -> list[CellRow]:
    """Two portable cells of each model, one to be compiled, one to be measured."""
    found: list[CellRow] = []
    for number in range(models):
        own = [row for row in rows(models, stamp=stamp) if row.model == model(number)]
        found += [replace(row, needs=PORTABLE) for row in own]
        for name, needs in ((compiled(number), COMPILED), (measured(number), MEASURED)):
            version = f"{own[0].version}-{name.rpartition('+')[2].replace(':', '-')}"
            found.append(replace(own[0], cell=name, version=version, needs=needs))
    return found


def leased(state: State, sweep_id: int, offers: frozenset[str]) -> Sequence[str]:
    lease = state.lease(sweep_id, ALIVE, 60.0, offers=offers)
    assert lease is not None
    return list(state.statuses(sweep_id, lease.model, lease.needs))


class TestNeeds:
    def test_every_machine_is_given_the_cells_that_it_can_do(self, state: State) -> None:
        sweep = begin(state, cells()).id
        assert leased(state, sweep, BOARD) == [cell(target="mlas_cpu"), cell()]
        assert leased(state, sweep, BOARD) == [compiled()]
        assert state.lease(sweep, ALIVE, 60.0, offers=BOARD) is None
        assert leased(state, sweep, LAB) == [measured()]
        assert state.remaining(sweep) == Remaining(leased=3)

    def test_slots_hold_one_model_side_by_side_and_record_their_own_cells(
        self, state: State
    ) -> None:
        sweep = begin(state, cells()).id
        one = state.lease(sweep, ALIVE, 60.0, offers=ANYWHERE)
        other = state.lease(sweep, FOREIGN, 60.0, offers=BOARD)
        assert one is not None
        assert other is not None
        assert (one.model, frozenset(one.needs)) == (other.model, PORTABLE)
        assert set(other.needs) == COMPILED
        state.record(one, sweep, cell(), Status.BUILDING)
        state.record(other, sweep, compiled(), Status.BUILDING)
        with pytest.raises(StateError, match="not a cell of this lease"):
            state.record(one, sweep, compiled(), Status.BUILT)
        assert state.renew(one, 60.0)
        assert state.release(one, done=False)
        assert status(state, state.sweep(sweep)) is Status.PLANNED, "half done, handed back"
        state.record(other, sweep, compiled(), Status.PUBLISHED, Facts(tree=TREE))
        assert state.release(other, done=True)
        assert state.demand(sweep) == {
            PORTABLE: Remaining(todo=1),
            COMPILED: Remaining(done=1),
            MEASURED: Remaining(todo=1),
        }

    def test_a_take_over_fences_off_the_cells_of_that_lease_alone(self, state: State) -> None:
        sweep = begin(state, cells()).id
        live = state.lease(sweep, ALIVE, 3600.0, offers=ANYWHERE)
        dead = state.lease(sweep, DEAD, 3600.0, offers=BOARD)
        assert live is not None
        assert dead is not None
        state.record(live, sweep, cell(), Status.BUILDING)
        state.record(dead, sweep, compiled(), Status.BUILDING)
        taken = state.lease(sweep, ALIVE, 60.0, offers=BOARD)
        assert taken is not None
        assert taken.needs == dead.needs
        assert taken.token > dead.token
        with pytest.raises(LeaseLost):
            state.record(dead, sweep, compiled(), Status.BUILT)
        assert status(state, state.sweep(sweep), compiled()) is Status.PLANNED
        state.record(live, sweep, cell(), Status.BUILT)

    def test_poison_is_what_killed_the_slots_and_nothing_else(self, state: State) -> None:
        sweep = begin(state, cells()).id
        state.record(None, sweep, cell(), Status.SKIPPED)
        state.record(None, sweep, cell(target="mlas_cpu"), Status.SKIPPED)
        begin(state, [replace(row, skip="x") if "+" not in row.cell else row for row in cells()])
        for _ in range(3):
            assert state.lease(sweep, DEAD, 60.0, offers=BOARD) is not None
        assert state.lease(sweep, ALIVE, 60.0, offers=BOARD) is None
        assert status(state, state.sweep(sweep), compiled()) is Status.BUILD_FAILED
        assert status(state, state.sweep(sweep), measured()) is Status.PLANNED
        assert leased(state, sweep, LAB) == [measured()]

    def test_what_nobody_offers_stays_open(self, state: State) -> None:
        sweep = begin(state, cells(2)).id
        while (lease := state.lease(sweep, ALIVE, 60.0, offers=ANYWHERE)) is not None:
            for name in state.statuses(sweep, lease.model, lease.needs):
                state.record(lease, sweep, name, Status.PUBLISHED, Facts(tree=TREE))
            state.release(lease, done=True)
        assert not state.remaining(sweep, offers=ANYWHERE).open
        assert state.remaining(sweep).open == 4
        assert state.remaining(sweep, [model(1)], offers=BOARD) == Remaining(done=1, todo=1)
        assert state.demand(sweep)[COMPILED] == Remaining(todo=2)
        found = state.outcome(sweep, compiled())
        assert found is not None
        assert set(found.needs) == COMPILED

    def test_two_sweeps_never_hold_parts_of_the_same_model(self, state: State) -> None:
        first = begin(state, cells()).id
        second = begin(state, cells(stamp="b"), stamp="b").id
        lease = state.lease(first, ALIVE, 60.0, offers=ANYWHERE)
        assert lease is not None
        assert state.lease(second, ALIVE, 60.0, offers=BOARD) is None
        state.release(lease, done=True)
        assert leased(state, second, BOARD)

    def test_memory_is_enough_where_there_is_as_much(self, state: State) -> None:
        sweep = begin(state, [replace(row, needs=MEASURED) for row in rows(1)]).id
        small = frozenset({"engine:fake", "quiet", "memory:4"})
        assert state.lease(sweep, ALIVE, 60.0, offers=small) is None
        assert state.lease(sweep, ALIVE, 60.0, offers=LAB) is not None

    def test_a_new_plan_may_need_other_machines(self, state: State) -> None:
        sweep = begin(state, cells()).id
        held = state.lease(sweep, ALIVE, 60.0, offers=ANYWHERE)
        assert held is not None
        more = [replace(row, needs={*row.needs, "lab"}) for row in cells()]
        begin(state, more)
        state.record(held, sweep, cell(), Status.BUILDING)  # what is held stays as it was
        assert state.lease(sweep, ALIVE, 60.0, offers=BOARD) is None
        assert leased(state, sweep, BOARD | {"lab"}) == [compiled()]
        state.release(held, done=False)
        begin(state, more)
        assert set(state.demand(sweep)) == {
            needs | {"lab"} for needs in (PORTABLE, COMPILED, MEASURED)
        }

    def test_done_cells_stay_done_when_their_needs_change(self, state: State) -> None:
        sweep = begin(state, cells()).id
        state.record(None, sweep, cell(), Status.PUBLISHED, Facts(tree=TREE))
        state.record(None, sweep, cell(target="mlas_cpu"), Status.VERIFY_FAILED)
        begin(state, rows(1))
        assert state.demand(sweep)[frozenset()] == Remaining(done=1)
        assert len(state.retry(sweep)) == 1
        assert state.demand(sweep)[frozenset()] == Remaining(todo=1)
