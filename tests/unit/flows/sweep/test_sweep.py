from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from feed.errors import Outage, Unauthorized, Unavailable
from feed.interface import Feed
from flows.sweep.index import index_line
from flows.sweep.stop import Stop
from matrix.digest import FileEntry
from matrix.errors import Exit
from matrix.model import PlannedModel
from matrix.status import FailureClass, Status
from state.errors import StateError
from tests.fakes.feed import Fault, FlakyFeed, MemoryFeed
from tests.sweeps.in_memory import TEMPLATE, Floor, make_plan, small_model


class Away(FlakyFeed):
    """A feed that answers nothing any more after so many publishes."""

    def __init__(self, inner: Feed, after: int) -> None:
        super().__init__(inner)
        self._after = after

    def _next(self, method: str) -> Fault | None:
        super()._next(method)
        if self.calls.count("publish") > self._after:
            raise Unavailable(f"{method}: down")
        return None


def test_every_cell_the_export_and_the_index_are_published_once(floor: Floor) -> None:
    plan = make_plan(small_model("a/one"), small_model("b/two"))
    summary = floor.sweep(plan)
    assert summary.exit_code() is Exit.OK
    assert set(floor.statuses().values()) == {Status.PUBLISHED}
    wanted = {(cell.package, cell.version) for cell in plan.cells()}
    wanted |= {(model.export_package, model.export_version) for model in plan.models}
    wanted |= {(plan.index_package, plan.index_version)}
    assert floor.versions().keys() == wanted


def test_the_export_runs_once_for_all_targets(floor: Floor) -> None:
    floor.sweep(make_plan(small_model(cells=8)))
    assert floor.ran.count("export") == 1
    assert floor.begun is not None
    runs = [run for run in floor.state.stage_runs(floor.begun.info.id) if not run.reused]
    assert len(runs) == len({run.key for run in runs}) == len(floor.ran)


def test_running_again_builds_and_publishes_nothing(floor: Floor) -> None:
    plan = make_plan(small_model())
    floor.sweep(plan)
    ran, before = list(floor.ran), floor.versions()
    assert floor.sweep(plan).exit_code() is Exit.OK
    assert floor.ran == ran
    assert floor.versions() == before


def test_what_the_feed_has_is_not_built_with_a_fresh_state(
    floor: Floor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plan = make_plan(small_model())
    floor.sweep(plan)
    other = Floor(tmp_path_factory.mktemp("other"), feed=floor.feed)
    try:
        assert other.sweep(plan).exit_code() is Exit.OK
        assert other.ran == []
        assert other.versions() == floor.versions()
    finally:
        other.close()


def test_what_the_feed_lost_is_published_again_from_the_store(floor: Floor) -> None:
    plan = make_plan(small_model())
    floor.sweep(plan)
    before, ran = floor.versions(), list(floor.ran)
    floor.feed = MemoryFeed()
    assert floor.sweep(plan).exit_code() is Exit.OK
    assert floor.versions() == before
    assert floor.ran == ran


def test_one_bad_cell_costs_no_other(floor: Floor) -> None:
    bad = small_model("a/bad", act={"quantize@vitisai_npu": "fail:QUANTIZE"})
    summary = floor.sweep(make_plan(bad, small_model("b/good")))
    assert summary.exit_code() is Exit.CELLS_FAILED
    failed = [one for one in floor.outcomes().values() if one.status is not Status.PUBLISHED]
    assert [(one.target, one.status) for one in failed] == [("vitisai_npu", Status.BUILD_FAILED)]
    assert failed[0].failure is not None
    assert failed[0].message
    assert len(summary.failures) == 1


def test_a_broken_export_is_tried_once_and_fails_every_cell_of_the_model(floor: Floor) -> None:
    bad = small_model("a/bad", act={"export": "fail:EXPORT"})
    summary = floor.sweep(make_plan(bad, small_model("b/good")))
    assert summary.counts == {"published": 3, "build_failed": 3}
    assert floor.ran.count("export") == 2, "one failed try, and the good model's"
    assert {one.failure for one in floor.outcomes().values() if one.status.failed} == {
        FailureClass.EXPORT
    }


def test_a_failed_cell_stays_failed_until_it_is_asked_for(floor: Floor) -> None:
    marker = floor.root / "marker"
    act = {"quantize@vitisai_npu": f"once:{marker}:fail:QUANTIZE"}
    plan = make_plan(small_model(act=act))
    assert floor.sweep(plan).exit_code() is Exit.CELLS_FAILED
    index = (plan.index_package, plan.index_version)
    assert index in floor.versions(), "a batch with failures has an index too"
    assert floor.sweep(plan).exit_code() is Exit.CELLS_FAILED
    assert floor.begun is not None
    retried = floor.state.retry(floor.begun.info.id, [FailureClass.QUANTIZE])
    assert [one.rpartition("@")[2] for one in retried] == ["vitisai_npu"]
    assert floor.sweep(plan).exit_code() is Exit.OK
    assert (plan.index_package, f"{plan.index_version}-r2") in floor.versions()


def test_a_skipped_cell_is_neither_built_nor_a_failure(floor: Floor) -> None:
    model = small_model()
    cells = (replace(model.cells[0], skip="needs a licence"), *model.cells[1:])
    summary = floor.sweep(make_plan(replace(model, cells=cells)))
    assert summary.exit_code() is Exit.OK
    assert summary.counts == {"published": 2, "skipped": 1}


def test_a_model_that_is_skipped_whole_is_not_even_exported(floor: Floor) -> None:
    model = small_model()
    cells = tuple(replace(cell, skip="later") for cell in model.cells)
    summary = floor.sweep(make_plan(replace(model, cells=cells)))
    assert summary.exit_code() is Exit.OK
    assert floor.ran == []
    assert floor.versions() == {}


def test_without_publishing_everything_ends_verified(floor: Floor) -> None:
    plan = make_plan(small_model())
    summary = floor.sweep(plan, no_publish=True)
    assert summary.exit_code() is Exit.OK
    assert summary.counts == {"verified": 3}
    assert floor.versions() == {}
    assert floor.sweep(plan).counts == {"published": 3}, "publishing later takes them up"


def test_a_package_that_does_not_pass_is_kept_and_not_published(floor: Floor) -> None:
    plan = make_plan(small_model())
    bad = next(plan.cells())
    floor.verifier.doubts.add(bad.id)
    summary = floor.sweep(plan)
    assert summary.exit_code() is Exit.CELLS_FAILED
    outcome = floor.outcomes()[bad.id]
    assert (outcome.status, outcome.failure) == (Status.VERIFY_FAILED, FailureClass.VERIFY)
    assert (bad.package, bad.version) not in floor.versions()
    assert (floor.root / "kept" / bad.package / bad.version / "modelmill.json").is_file()


def test_a_lost_reply_ends_published_once(floor: Floor) -> None:
    floor.feed = FlakyFeed(MemoryFeed()).plan("publish", Fault.LOST, None, Fault.LOST)
    summary = floor.sweep(make_plan(small_model()))
    assert summary.exit_code() is Exit.OK
    assert set(floor.statuses().values()) == {Status.PUBLISHED}
    assert isinstance(floor.feed, FlakyFeed)
    assert floor.feed.calls.count("publish") == 4 + 1, "three cells, the export, the index"


def test_a_host_that_may_not_publish_stops_the_sweep_and_keeps_the_work(floor: Floor) -> None:
    plan = make_plan(small_model("a/one"), small_model("b/two"))
    inner = MemoryFeed()
    floor.feed = FlakyFeed(inner).plan("publish", None, Fault.DENIED)
    summary = floor.sweep(plan)
    assert summary.exit_code(floor.stop) is Exit.HOST_CANNOT_PUBLISH
    assert isinstance(floor.stop.error, Unauthorized)
    assert summary.open
    assert not any(one.status.failed for one in floor.outcomes().values())
    ran = list(floor.ran)
    floor.feed, floor.stop = inner, Stop()
    assert floor.sweep(plan).exit_code() is Exit.OK
    done_twice = [stage for stage in floor.ran if floor.ran.count(stage) > 2]
    assert not done_twice, f"two models, so at most two runs of a stage: {floor.ran}, was {ran}"


def test_a_feed_outage_stops_the_sweep_and_the_next_run_completes_it(floor: Floor) -> None:
    plan = make_plan(*[small_model(f"m/{number}") for number in range(4)])
    inner = floor.feed
    floor.feed = Away(inner, after=2)
    summary = floor.sweep(plan)
    assert summary.exit_code(floor.stop) is Exit.UNUSABLE
    assert isinstance(floor.stop.error, Outage)
    assert not summary.failures
    assert summary.open
    ran = list(floor.ran)
    floor.feed, floor.stop = inner, Stop()
    assert 0 < len(floor.versions()) < 16
    assert floor.sweep(plan).exit_code() is Exit.OK
    assert len(floor.versions()) == 4 * 4 + 1
    assert all(floor.ran.count(stage) <= 4 for stage in ran), "what was built is not built again"


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
    floor: Floor, fault: Fault, kind: FailureClass, step: str
) -> None:
    plan = make_plan(small_model(cells=1))
    floor.feed = FlakyFeed(MemoryFeed()).plan("publish", None, *[fault] * 3)
    assert floor.sweep(plan).exit_code(floor.stop) is Exit.CELLS_FAILED
    outcome = floor.outcomes()[next(plan.cells()).id]
    assert (outcome.status, outcome.failure) == (Status.PUBLISH_FAILED, kind)
    assert (outcome.hint or "").endswith(step)
    # Sweeping again does what the step says, where the step is not a retry.
    floor.feed = floor.feed.inner
    again = floor.sweep(plan)
    assert again.exit_code() is (Exit.OK if kind.may_pass else Exit.CELLS_FAILED)


def test_a_publish_over_its_time_limit_is_a_timeout(floor: Floor) -> None:
    model = small_model(cells=1)
    cell = replace(model.cells[0], publish_timeout=10.0)
    floor.feed = FlakyFeed(MemoryFeed()).plan("publish", None, Fault.THROTTLED)
    floor.sweep(make_plan(replace(model, cells=(cell,))))
    outcome = floor.outcomes()[cell.id]
    assert outcome.failure is FailureClass.TIMEOUT
    step = "modelmill retry 20260609 --class TIMEOUT --publish-timeout 20"
    assert (outcome.hint or "").endswith(step)


@pytest.mark.parametrize("kind", ["UNSUPPORTED", "AUTH"])
def test_what_failed_for_a_cause_that_may_have_passed_is_tried_by_the_next_run(
    floor: Floor, kind: str
) -> None:
    def failing_once(name: str, how: str) -> PlannedModel:
        act = {"quantize@vitisai_npu": f"once:{floor.root / how}:fail:{how}"}
        return small_model(name, act=act, cells=1)

    plan = make_plan(failing_once("a/one", kind), failing_once("b/two", "QUANTIZE"))
    floor.sweep(plan)
    failed = {one.model: one.failure for one in floor.outcomes().values() if one.status.failed}
    assert set(failed.values()) == {FailureClass(kind), FailureClass.QUANTIZE}
    summary = floor.sweep(plan)
    assert [one.failure for one in summary.failures] == ["QUANTIZE"]
    assert floor.begun is not None
    assert floor.begun.earlier.lines("20260609") == [
        f"failed before, tried again: 1 {kind}",
        "failed before, left as they are: 1 QUANTIZE; to try them again: modelmill retry 20260609",
    ]


def test_the_index_of_a_sweep_with_failures_says_what_follows() -> None:
    plan = make_plan(small_model())
    line = index_line(plan, TEMPLATE, "0.0.0-20260609", 1)
    assert line.endswith("once that is repaired 0.0.0-20260609-r2 follows")
    assert "-r3" in index_line(plan, TEMPLATE, "0.0.0-20260609-r2", 1)
    assert index_line(plan, TEMPLATE, "0.0.0-20260609", 0).endswith("index 0.0.0-20260609")


def test_a_conflict_keeps_the_local_package_and_leaves_the_feed_alone(floor: Floor) -> None:
    plan = make_plan(small_model())
    cell = next(plan.cells())
    assert isinstance(floor.feed, MemoryFeed)
    data = b"not ours"
    entry = FileEntry("other.txt", len(data), hashlib.sha256(data).hexdigest())
    floor.feed.hold(cell.package, cell.version, {"other.txt": data}, [entry])
    before = floor.versions()[cell.package, cell.version]
    summary = floor.sweep(plan)
    assert summary.exit_code() is Exit.CELLS_FAILED
    outcome = floor.outcomes()[cell.id]
    assert outcome.status is Status.CONFLICT
    assert floor.versions()[cell.package, cell.version] == before
    assert (floor.root / "kept" / cell.package / cell.version / "model.onnx").is_file()


def test_a_deleted_version_is_a_conflict_before_anything_is_built(floor: Floor) -> None:
    plan = make_plan(small_model(cells=1))
    floor.sweep(plan)
    cell = next(plan.cells())
    assert isinstance(floor.feed, MemoryFeed)
    floor.feed.delete(cell.package, cell.version)
    ran = list(floor.ran)
    assert floor.sweep(plan).exit_code() is Exit.CELLS_FAILED
    assert floor.outcomes()[cell.id].status is Status.CONFLICT
    assert "--stamp" in (floor.outcomes()[cell.id].hint or "")
    assert floor.ran == ran


def test_a_feed_that_cannot_be_listed_stops_the_sweep_unless_the_state_is_trusted(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stop, "wait", lambda _stop, _seconds: False)
    plan = make_plan(small_model())
    floor.feed = FlakyFeed(MemoryFeed()).plan("versions", *[Fault.DOWN] * 20)
    with pytest.raises(Unavailable):
        floor.sweep(plan)
    assert floor.ran == []
    floor.feed = FlakyFeed(MemoryFeed()).plan("versions", *[Fault.DOWN] * 4)
    assert floor.sweep(plan, trust_state=True).counts == {"published": 3}


def test_if_changed_publishes_no_cell_that_equals_its_newest_version(floor: Floor) -> None:
    model = small_model()
    floor.sweep(make_plan(model))
    ran, before = list(floor.ran), floor.versions()
    summary = floor.sweep(make_plan(model, stamp="20260610"), if_changed=True)
    assert summary.counts == {"unchanged": 3}
    assert summary.exit_code() is Exit.OK
    assert floor.ran == ran
    new = floor.versions().keys() - before.keys()
    assert new == {("modelmill-index", "0.0.0-20260610")}
    outcome = floor.outcomes()[model.cells[0].id]
    assert outcome.detail == {"same_as": model.cells[0].version}


def test_if_changed_publishes_what_did_change(floor: Floor) -> None:
    floor.sweep(make_plan(small_model()))
    changed = small_model(salt="new weights")
    summary = floor.sweep(make_plan(changed, stamp="20260610"), if_changed=True)
    assert summary.counts == {"published": 3}


def test_going_back_to_an_older_content_is_a_change(floor: Floor) -> None:
    old, new = small_model(), small_model(salt="x")
    floor.sweep(make_plan(old, stamp="1"))
    floor.sweep(make_plan(new, stamp="2"), if_changed=True)
    assert floor.sweep(make_plan(old, stamp="3"), if_changed=True).counts == {"published": 3}


def test_a_stop_in_the_middle_leaves_a_resumable_sweep(floor: Floor) -> None:
    plan = make_plan(*[small_model(f"m/{number}") for number in range(4)])
    inner = floor.feed
    published: list[str] = []

    class Stopping(FlakyFeed):
        def publish(self, package: str, version: str, *args: object, **more: object):  # type: ignore[no-untyped-def]
            published.append(version)
            if len(published) == 5:
                floor.stop.ask()
            return super().publish(package, version, *args, **more)  # type: ignore[arg-type]

    floor.feed = Stopping(inner)
    summary = floor.sweep(plan)
    assert summary.exit_code(floor.stop) is Exit.INTERRUPTED
    assert summary.open
    assert floor.begun is not None
    assert floor.state.leases(floor.begun.info.id) == []
    floor.feed, floor.stop = inner, Stop()
    assert floor.sweep(plan).exit_code() is Exit.OK
    assert len(floor.versions()) == 4 * 4 + 1


def test_a_selection_does_not_take_up_the_rest_of_the_sweep(floor: Floor) -> None:
    one, two = small_model("a/one"), small_model("b/two")
    floor.sweep(make_plan(one, two), no_publish=True)
    summary = floor.sweep(make_plan(one))
    assert summary.counts == {"published": 3}
    statuses = floor.statuses()
    assert all(statuses[cell.id] is not Status.PUBLISHED for cell in two.cells)


def test_two_slots_share_the_models(floor: Floor) -> None:
    plan = make_plan(*[small_model(f"m/{number}") for number in range(6)])
    assert floor.sweep(plan, slots=3).counts == {"published": 18}
    assert floor.ran.count("export") == 6


def test_settings_that_rename_published_cells_are_refused(floor: Floor) -> None:
    model = small_model()
    floor.sweep(make_plan(model))
    renamed = tuple(replace(cell, package="other") for cell in model.cells)
    with pytest.raises(StateError, match="another --stamp"):
        floor.sweep(make_plan(replace(model, cells=renamed)))


def test_exports_are_recorded_like_cells(floor: Floor) -> None:
    model = small_model()
    floor.sweep(make_plan(model))
    outcome = floor.outcomes()[model.exports[0].id]
    assert (outcome.status, outcome.target) == (Status.PUBLISHED, "export")


def test_cells_with_an_opset_of_their_own_get_an_export_of_their_own(floor: Floor) -> None:
    model = small_model()
    other = replace(model.cells[0], policy=replace(model.cells[0].policy, opset=13))
    plan = make_plan(replace(model, cells=(other, *model.cells[1:])))
    assert floor.sweep(plan).exit_code() is Exit.OK
    assert floor.ran.count("export") == 2
    trees = floor.versions()
    for export in plan.models[0].exports:
        assert trees[export.package, export.version]
    assert plan.models[0].exports[0].version.endswith("-opset13")


def test_a_package_kept_for_its_failure_gives_way_to_the_next_one(floor: Floor) -> None:
    plan = make_plan(small_model(cells=1))
    cell = next(plan.cells())
    floor.verifier.doubts.add(cell.id)
    floor.sweep(plan)
    assert floor.begun is not None
    floor.state.retry(floor.begun.info.id)
    assert floor.sweep(plan).exit_code() is Exit.CELLS_FAILED
    assert floor.outcomes()[cell.id].status is Status.VERIFY_FAILED
