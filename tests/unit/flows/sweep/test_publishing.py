"""What feeds do to a sweep: they lose, refuse, conflict, or do not answer."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from feed.errors import Outage, Unauthorized, Unavailable
from feed.interface import Feed
from flows.stop import Stop
from matrix.digest import FileEntry
from matrix.errors import Exit
from matrix.status import FailureClass, Status
from tests.fakes.feed import Fault, FlakyFeed, MemoryFeed
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


class UnreachableFeed(FlakyFeed):
    """A feed that answers nothing any more after so many publishes."""

    def __init__(self, inner: Feed, after: int) -> None:
        super().__init__(inner)
        self._after = after

    def _next(self, method: str) -> Fault | None:
        super()._next(method)
        if self.calls.count("publish") > self._after:
            raise Unavailable(f"{method}: down")
        return None


def test_what_the_feed_has_is_not_built_with_a_fresh_state(
    harness: SweepHarness, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plan = make_plan(small_model())
    harness.sweep(plan)
    other = SweepHarness(tmp_path_factory.mktemp("other"), feed=harness.feed)
    try:
        assert other.sweep(plan).exit_code() is Exit.OK
        assert other.ran == []
        assert other.versions() == harness.versions()
    finally:
        other.close()


def test_what_the_feed_lost_is_published_again_from_the_store(harness: SweepHarness) -> None:
    plan = make_plan(small_model())
    harness.sweep(plan)
    before, ran = harness.versions(), list(harness.ran)
    harness.feed = MemoryFeed()
    assert harness.sweep(plan).exit_code() is Exit.OK
    assert harness.versions() == before
    assert harness.ran == ran


def test_a_lost_reply_ends_published_once(harness: SweepHarness) -> None:
    harness.feed = FlakyFeed(MemoryFeed()).plan("publish", Fault.LOST, None, Fault.LOST)
    summary = harness.sweep(make_plan(small_model()))
    assert summary.exit_code() is Exit.OK
    assert set(harness.statuses().values()) == {Status.PUBLISHED}
    assert isinstance(harness.feed, FlakyFeed)
    assert harness.feed.calls.count("publish") == 4 + 1, "three cells, the export, the index"


def test_a_version_that_the_feed_shows_late_is_no_failure(harness: SweepHarness) -> None:
    feed = FlakyFeed(MemoryFeed())
    harness.feed = feed.plan("publish", None, Fault.LOST).plan(
        "find", None, None, *[Fault.EMPTY] * 7
    )
    plan = make_plan(small_model(cells=1))
    assert harness.sweep(plan).exit_code() is Exit.OK
    assert set(harness.statuses().values()) == {Status.PUBLISHED}
    assert harness.begun is not None
    events = list(harness.state.events(harness.begun.info.id))
    told = [one.status for one in events if one.cell == next(plan.cells()).id]
    assert told[-2:] == [Status.PUBLISH_FAILED, Status.PUBLISHED]


def test_a_host_that_may_not_publish_stops_the_sweep_and_keeps_the_work(
    harness: SweepHarness,
) -> None:
    plan = make_plan(small_model("a/one"), small_model("b/two"))
    inner = MemoryFeed()
    harness.feed = FlakyFeed(inner).plan("publish", None, Fault.DENIED)
    summary = harness.sweep(plan)
    assert summary.exit_code(harness.stop) is Exit.HOST_CANNOT_PUBLISH
    assert isinstance(harness.stop.error, Unauthorized)
    assert summary.open
    assert not any(one.status.failed for one in harness.outcomes().values())
    ran = list(harness.ran)
    harness.feed, harness.stop = inner, Stop()
    assert harness.sweep(plan).exit_code() is Exit.OK
    done_twice = [stage for stage in harness.ran if harness.ran.count(stage) > 2]
    assert not done_twice, f"two models, so at most two runs of a stage: {harness.ran}, was {ran}"


def test_a_feed_outage_stops_the_sweep_and_the_next_run_completes_it(harness: SweepHarness) -> None:
    plan = make_plan(*[small_model(f"m/{number}") for number in range(4)])
    inner = harness.feed
    harness.feed = UnreachableFeed(inner, after=2)
    summary = harness.sweep(plan)
    assert summary.exit_code(harness.stop) is Exit.UNUSABLE
    assert isinstance(harness.stop.error, Outage)
    assert not summary.failures
    assert summary.open
    ran = list(harness.ran)
    harness.feed, harness.stop = inner, Stop()
    assert 0 < len(harness.versions()) < 16
    assert harness.sweep(plan).exit_code() is Exit.OK
    assert len(harness.versions()) == 4 * 4 + 1
    assert all(harness.ran.count(stage) <= 4 for stage in ran), "what was built is not built again"


@pytest.mark.parametrize(
    ("fault", "kind", "step"),
    [
        (Fault.DOWN, FailureClass.NETWORK, "modelmill resume 20260609"),
        (Fault.SILENT, FailureClass.NETWORK, "modelmill resume 20260609"),
        (Fault.FULL, FailureClass.DISK, "modelmill resume 20260609"),
        (Fault.REFUSED, FailureClass.PUBLISH, "modelmill retry 20260609 --class PUBLISH"),
    ],
)
def test_what_a_feed_does_to_one_package_has_a_class_and_a_step(
    harness: SweepHarness, fault: Fault, kind: FailureClass, step: str
) -> None:
    plan = make_plan(small_model(cells=1))
    harness.feed = FlakyFeed(MemoryFeed()).plan("publish", None, *[fault] * 3)
    assert harness.sweep(plan).exit_code(harness.stop) is Exit.CELLS_FAILED
    outcome = harness.outcomes()[next(plan.cells()).id]
    assert (outcome.status, outcome.failure) == (Status.PUBLISH_FAILED, kind)
    assert (outcome.hint or "").endswith(step)
    # Sweeping again does what the step says, where the step is not a retry.
    harness.feed = harness.feed.inner
    again = harness.sweep(plan)
    assert again.exit_code() is (Exit.OK if kind.may_pass else Exit.CELLS_FAILED)


def test_on_a_fleet_the_step_is_one_of_a_fleet(harness: SweepHarness) -> None:
    plan = make_plan(small_model(cells=1))
    harness.feed = FlakyFeed(MemoryFeed()).plan("publish", None, *[Fault.DOWN] * 3)
    harness.sweep(plan, in_hints=" --fleet")
    hint = harness.outcomes()[next(plan.cells()).id].hint or ""
    assert hint.endswith("modelmill resume 20260609 --fleet")


@pytest.mark.parametrize(
    ("flags", "step"),
    [
        ("", "modelmill retry 20260609 --class TIMEOUT --publish-timeout 20"),
        # A retry keeps the plan of a fleet's sweep.
        (
            " --fleet",
            (
                "modelmill retry 20260609 --fleet --class TIMEOUT; with more time:"
                " modelmill sweep CATALOG --stamp 20260609 --fleet --publish-timeout 20"
            ),
        ),
    ],
)
def test_a_publish_over_its_time_limit_is_a_timeout(
    harness: SweepHarness, flags: str, step: str
) -> None:
    model = small_model(cells=1)
    cell = replace(model.cells[0], publish_timeout=10.0)
    harness.feed = FlakyFeed(MemoryFeed()).plan("publish", None, Fault.THROTTLED)
    harness.sweep(make_plan(replace(model, cells=(cell,))), in_hints=flags)
    outcome = harness.outcomes()[cell.id]
    assert outcome.failure is FailureClass.TIMEOUT
    assert (outcome.hint or "").endswith(step)


def test_a_conflict_keeps_the_local_package_and_leaves_the_feed_alone(
    harness: SweepHarness,
) -> None:
    plan = make_plan(small_model())
    cell = next(plan.cells())
    assert isinstance(harness.feed, MemoryFeed)
    data = b"not ours"
    entry = FileEntry("other.txt", len(data), hashlib.sha256(data).hexdigest())
    harness.feed.hold(cell.package, cell.version, {"other.txt": data}, [entry])
    before = harness.versions()[cell.package, cell.version]
    summary = harness.sweep(plan)
    assert summary.exit_code() is Exit.CELLS_FAILED
    outcome = harness.outcomes()[cell.id]
    assert outcome.status is Status.CONFLICT
    assert harness.versions()[cell.package, cell.version] == before
    assert (harness.root / "kept" / cell.package / cell.version / "model.onnx").is_file()


def test_a_deleted_version_is_a_conflict_before_anything_is_built(harness: SweepHarness) -> None:
    plan = make_plan(small_model(cells=1))
    harness.sweep(plan)
    cell = next(plan.cells())
    assert isinstance(harness.feed, MemoryFeed)
    harness.feed.delete(cell.package, cell.version)
    ran = list(harness.ran)
    assert harness.sweep(plan).exit_code() is Exit.CELLS_FAILED
    assert harness.outcomes()[cell.id].status is Status.CONFLICT
    assert "--stamp" in (harness.outcomes()[cell.id].hint or "")
    assert harness.ran == ran


def test_a_feed_that_cannot_be_listed_stops_the_sweep_unless_the_state_is_trusted(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stop, "wait", lambda _stop, _seconds: False)
    plan = make_plan(small_model())
    harness.feed = FlakyFeed(MemoryFeed()).plan("versions", *[Fault.DOWN] * 20)
    with pytest.raises(Unavailable):
        harness.sweep(plan)
    assert harness.ran == []
    harness.feed = FlakyFeed(MemoryFeed()).plan("versions", *[Fault.DOWN] * 4)
    assert harness.sweep(plan, trust_state=True).counts == {"published": 3}
