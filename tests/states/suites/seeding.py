from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from matrix.status import FAILED, Status
from state.records import Facts, Kind, Remaining, Seeded, Seen
from state.state import State
from tests.states.samples import (
    FOREIGN,
    TREE,
    begin,
    cell,
    counts,
    rows,
    status,
    take,
)

AT = datetime(2026, 6, 9, 12, tzinfo=UTC)


def seen(models: int = 1) -> list[Seen]:
    return [Seen(row.cell, TREE, row.version, AT) for row in rows(models)]


class TestSeeding:
    def test_versions_in_the_feed_are_published(self, state: State) -> None:
        sweep = begin(state, rows(2))
        assert state.seed(sweep.id, seen()).new == 2
        assert counts(state, sweep.id) == {Status.PUBLISHED: 2, Status.PLANNED: 2}
        assert state.remaining(sweep.id) == Remaining(todo=1, done=1)
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert (found.tree, found.published_at) == (TREE, AT.timestamp())
        events = list(state.events(sweep.id, kind=Kind.SEEDED))
        assert {one.cell for one in events} == {row.cell for row in rows(1)}
        assert {one.status for one in events} == {Status.PUBLISHED}

    def test_seeding_twice_records_it_once(self, state: State) -> None:
        sweep = begin(state)
        state.seed(sweep.id, seen())
        assert state.seed(sweep.id, seen()).new == 0
        assert len(list(state.events(sweep.id, kind=Kind.SEEDED))) == 2

    def test_other_cells_and_versions_are_ignored(self, state: State) -> None:
        sweep = begin(state)
        strangers = [Seen("nobody@nowhere", TREE, "1.0.0"), Seen(cell(), TREE, "0.0.0-older")]
        assert state.seed(sweep.id, strangers).new == 0
        assert state.seed(sweep.id, []).new == 0
        assert counts(state, sweep.id) == {Status.PLANNED: 4}

    def test_a_listing_may_read_the_state_while_it_goes_on(self, state: State) -> None:
        sweep = begin(state)

        def listing() -> Iterator[Seen]:
            for one in seen():
                state.note(sweep.id, Kind.NOTICE)
                yield one

        assert state.seed(sweep.id, listing()).new == 2

    def test_leased_cells_are_left_to_their_holder(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep, FOREIGN)
        assert state.seed(sweep.id, seen(2)).new == 2
        state.record(lease, sweep.id, cell(), Status.BUILDING)
        assert status(state, sweep, cell(1)) is Status.PUBLISHED

    def test_a_digest_that_the_feed_does_not_have_is_corrected(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        facts = Facts(tree="b" * 64, seconds=3.0)
        state.record(lease, sweep.id, cell(), Status.PUBLISHED, facts)
        assert state.seed(sweep.id, seen()) == Seeded(0), "it is the holder's"
        state.release(lease, done=True)
        assert state.seed(sweep.id, seen()) == Seeded(1, (cell(),))
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert (found.tree, found.seconds) == (TREE, 3.0)
        last = [one for one in state.events(sweep.id, kind=Kind.SEEDED) if one.cell == cell()]
        assert [one.data for one in last] == [{"recorded": "b" * 64}]
        assert state.seed(sweep.id, seen()) == Seeded(0)

    @pytest.mark.parametrize("failed", sorted(FAILED))
    def test_a_version_in_the_feed_overrides_a_failure(self, state: State, failed: Status) -> None:
        sweep = begin(state)
        state.record(None, sweep.id, cell(), failed)
        state.seed(sweep.id, seen())
        expected = failed if failed is Status.CONFLICT else Status.PUBLISHED
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.status is expected
        assert (found.failure is None) == (expected is Status.PUBLISHED)

    def test_a_version_missing_from_the_feed_is_planned_again(self, state: State) -> None:
        sweep = begin(state)
        state.seed(sweep.id, seen(2))
        before = state.now() + 60
        assert state.unseed(sweep.id, [cell(), "nobody@nowhere"], before) == [cell()]
        assert status(state, sweep) is Status.PLANNED
        assert state.remaining(sweep.id) == Remaining(todo=1, done=1)
        (event,) = state.events(sweep.id, kind=Kind.UNSEEDED)
        assert event.data is not None
        assert "feed" in event.data["why"]

    def test_what_was_published_after_the_listing_began_stays(self, state: State) -> None:
        sweep = begin(state)
        before = state.now()
        lease = take(state, sweep)
        state.record(lease, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
        state.release(lease, done=True)
        assert state.unseed(sweep.id, [cell()], before - 1) == []
        assert status(state, sweep) is Status.PUBLISHED

    def test_only_published_cells_are_unseeded(self, state: State) -> None:
        sweep = begin(state)
        state.record(None, sweep.id, cell(), Status.VERIFY_FAILED)
        assert state.unseed(sweep.id, [row.cell for row in rows()], state.now() + 60) == []
