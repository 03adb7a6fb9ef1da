from __future__ import annotations

from dataclasses import replace

import pytest

from feed.errors import Unauthorized
from flows.run.resume import failed_cells
from flows.stop import Stop
from flows.sweep.index import index_line
from flows.sweep.lifecycle import Sweep
from matrix.errors import Exit
from matrix.model import PlannedModel
from matrix.status import FailureClass, Status
from state.errors import StateError
from tests.fakes.feed import Fault, FlakyFeed
from tests.sweeps.in_memory import TEMPLATE, SweepHarness, make_plan, small_model


def test_every_cell_the_export_and_the_index_are_published_once(harness: SweepHarness) -> None:
    plan = make_plan(small_model("a/one"), small_model("b/two"))
    summary = harness.sweep(plan)
    assert summary.exit_code() is Exit.OK
    assert set(harness.statuses().values()) == {Status.PUBLISHED}
    wanted = {(cell.package, cell.version) for cell in plan.cells()}
    wanted |= {(model.export_package, model.export_version) for model in plan.models}
    wanted |= {(plan.index_package, plan.index_version)}
    assert harness.versions().keys() == wanted


def test_the_export_runs_once_for_all_targets(harness: SweepHarness) -> None:
    harness.sweep(make_plan(small_model(cells=8)))
    assert harness.ran.count("export") == 1
    assert harness.begun is not None
    runs = [run for run in harness.state.stage_runs(harness.begun.info.id) if not run.reused]
    assert len(runs) == len({run.key for run in runs}) == len(harness.ran)


def test_running_again_builds_and_publishes_nothing(harness: SweepHarness) -> None:
    plan = make_plan(small_model())
    harness.sweep(plan)
    ran, before = list(harness.ran), harness.versions()
    assert harness.sweep(plan).exit_code() is Exit.OK
    assert harness.ran == ran
    assert harness.versions() == before


def test_one_bad_cell_costs_no_other(harness: SweepHarness) -> None:
    bad = small_model("a/bad", act={"quantize@vitisai_npu": "fail:QUANTIZE"})
    summary = harness.sweep(make_plan(bad, small_model("b/good")))
    assert summary.exit_code() is Exit.CELLS_FAILED
    failed = [one for one in harness.outcomes().values() if one.status is not Status.PUBLISHED]
    assert [(one.target, one.status) for one in failed] == [("vitisai_npu", Status.BUILD_FAILED)]
    assert failed[0].failure is not None
    assert failed[0].message
    assert len(summary.failures) == 1


def test_a_broken_export_is_tried_once_and_fails_every_cell_of_the_model(
    harness: SweepHarness,
) -> None:
    bad = small_model("a/bad", act={"export": "fail:EXPORT"})
    summary = harness.sweep(make_plan(bad, small_model("b/good")))
    assert summary.counts == {"published": 3, "build_failed": 3}
    assert harness.ran.count("export") == 2, "one failed try, and the good model's"
    assert {one.failure for one in harness.outcomes().values() if one.status.failed} == {
        FailureClass.EXPORT
    }


def test_a_failed_cell_stays_failed_until_it_is_asked_for(harness: SweepHarness) -> None:
    marker = harness.root / "marker"
    act = {"quantize@vitisai_npu": f"once:{marker}:fail:QUANTIZE"}
    plan = make_plan(small_model(act=act))
    assert harness.sweep(plan).exit_code() is Exit.CELLS_FAILED
    index = (plan.index_package, plan.index_version)
    assert index in harness.versions(), "a batch with failures has an index too"
    assert harness.sweep(plan).exit_code() is Exit.CELLS_FAILED
    assert harness.begun is not None
    retried = harness.state.retry(harness.begun.info.id, [FailureClass.QUANTIZE])
    assert [one.rpartition("@")[2] for one in retried] == ["vitisai_npu"]
    assert harness.sweep(plan).exit_code() is Exit.OK
    assert (plan.index_package, f"{plan.index_version}-r2") in harness.versions()


@pytest.mark.parametrize("kind", [FailureClass.AUTH, FailureClass.QUANTIZE])
def test_a_run_that_cannot_list_the_feed_forgets_no_failure(
    harness: SweepHarness, kind: FailureClass
) -> None:
    act = {"quantize@vitisai_npu": f"once:{harness.root / 'marker'}:fail:{kind}"}
    plan = make_plan(small_model(act=act))
    harness.sweep(plan)
    info = harness.state.find_sweep()
    assert info is not None
    failed = failed_cells(harness.state, info, [kind], [])
    before = harness.outcomes()
    flaky = FlakyFeed(harness.feed).plan("versions", Fault.DENIED, Fault.DENIED)
    for again in (failed, None):
        sweep = Sweep(plan, harness.settings(), harness.state, flaky, Stop(), again=again)
        with pytest.raises(Unauthorized):
            sweep.begin()
        assert harness.outcomes() == before
        assert harness.state.sweep(info.id).exit_code == Exit.HOST_CANNOT_PUBLISH
    assert harness.sweep(plan, again=failed).exit_code() is Exit.OK


def test_a_skipped_cell_is_neither_built_nor_a_failure(harness: SweepHarness) -> None:
    model = small_model()
    cells = (replace(model.cells[0], skip="needs a licence"), *model.cells[1:])
    summary = harness.sweep(make_plan(replace(model, cells=cells)))
    assert summary.exit_code() is Exit.OK
    assert summary.counts == {"published": 2, "skipped": 1}


def test_a_model_that_is_skipped_whole_is_not_even_exported(harness: SweepHarness) -> None:
    model = small_model()
    cells = tuple(replace(cell, skip="later") for cell in model.cells)
    summary = harness.sweep(make_plan(replace(model, cells=cells)))
    assert summary.exit_code() is Exit.OK
    assert harness.ran == []
    assert harness.versions() == {}


def test_without_publishing_everything_ends_verified(harness: SweepHarness) -> None:
    plan = make_plan(small_model())
    summary = harness.sweep(plan, no_publish=True)
    assert summary.exit_code() is Exit.OK
    assert summary.counts == {"verified": 3}
    assert harness.versions() == {}
    assert harness.sweep(plan).counts == {"published": 3}, "publishing later takes them up"


def test_a_package_that_does_not_pass_is_kept_and_not_published(harness: SweepHarness) -> None:
    plan = make_plan(small_model())
    bad = next(plan.cells())
    harness.verifier.doubts.add(bad.id)
    summary = harness.sweep(plan)
    assert summary.exit_code() is Exit.CELLS_FAILED
    outcome = harness.outcomes()[bad.id]
    assert (outcome.status, outcome.failure) == (Status.VERIFY_FAILED, FailureClass.VERIFY)
    assert (bad.package, bad.version) not in harness.versions()
    assert (harness.root / "kept" / bad.package / bad.version / "modelmill.json").is_file()
    assert outcome.hint
    assert outcome.hint.endswith(f", below {harness.root / 'kept'}")


@pytest.mark.parametrize("kind", ["UNSUPPORTED", "AUTH"])
def test_what_failed_for_a_cause_that_may_have_passed_is_tried_by_the_next_run(
    harness: SweepHarness, kind: str
) -> None:
    def failing_once(name: str, how: str) -> PlannedModel:
        act = {"quantize@vitisai_npu": f"once:{harness.root / how}:fail:{how}"}
        return small_model(name, act=act, cells=1)

    plan = make_plan(failing_once("a/one", kind), failing_once("b/two", "QUANTIZE"))
    harness.sweep(plan)
    failed = {one.model: one.failure for one in harness.outcomes().values() if one.status.failed}
    assert set(failed.values()) == {FailureClass(kind), FailureClass.QUANTIZE}
    summary = harness.sweep(plan)
    assert [one.failure for one in summary.failures] == ["QUANTIZE"]
    assert harness.begun is not None
    assert harness.begun.earlier == [
        f"failed before, tried again: 1 {kind}",
        "failed before, left as they are: 1 QUANTIZE; to try them again: modelmill retry 20260609",
    ]


def test_the_index_of_a_sweep_with_failures_says_what_follows() -> None:
    plan = make_plan(small_model())
    line = index_line(plan, TEMPLATE, "0.0.0-20260609", 1)
    assert line.endswith("once that is repaired 0.0.0-20260609-r2 follows")
    assert "-r3" in index_line(plan, TEMPLATE, "0.0.0-20260609-r2", 1)
    assert index_line(plan, TEMPLATE, "0.0.0-20260609", 0).endswith("index 0.0.0-20260609")


def test_if_changed_publishes_no_cell_that_equals_its_newest_version(harness: SweepHarness) -> None:
    model = small_model()
    harness.sweep(make_plan(model))
    ran, before = list(harness.ran), harness.versions()
    summary = harness.sweep(make_plan(model, stamp="20260610"), if_changed=True)
    assert summary.counts == {"unchanged": 3}
    assert summary.exit_code() is Exit.OK
    assert harness.ran == ran
    new = harness.versions().keys() - before.keys()
    assert new == {("modelmill-index", "0.0.0-20260610")}
    outcome = harness.outcomes()[model.cells[0].id]
    assert outcome.detail == {"same_as": model.cells[0].version}


def test_if_changed_publishes_what_did_change(harness: SweepHarness) -> None:
    harness.sweep(make_plan(small_model()))
    changed = small_model(salt="new weights")
    summary = harness.sweep(make_plan(changed, stamp="20260610"), if_changed=True)
    assert summary.counts == {"published": 3}


def test_going_back_to_an_older_content_is_a_change(harness: SweepHarness) -> None:
    old, new = small_model(), small_model(salt="x")
    harness.sweep(make_plan(old, stamp="1"))
    harness.sweep(make_plan(new, stamp="2"), if_changed=True)
    assert harness.sweep(make_plan(old, stamp="3"), if_changed=True).counts == {"published": 3}


def test_a_stop_in_the_middle_leaves_a_resumable_sweep(harness: SweepHarness) -> None:
    plan = make_plan(*[small_model(f"m/{number}") for number in range(4)])
    inner = harness.feed
    published: list[str] = []

    class Stopping(FlakyFeed):
        def publish(self, package: str, version: str, *args: object, **more: object):  # type: ignore[no-untyped-def]
            published.append(version)
            if len(published) == 5:
                harness.stop.ask()
            return super().publish(package, version, *args, **more)  # type: ignore[arg-type]

    harness.feed = Stopping(inner)
    summary = harness.sweep(plan)
    assert summary.exit_code(harness.stop) is Exit.INTERRUPTED
    assert summary.open
    assert harness.begun is not None
    assert harness.state.leases(harness.begun.info.id) == []
    harness.feed, harness.stop = inner, Stop()
    assert harness.sweep(plan).exit_code() is Exit.OK
    assert len(harness.versions()) == 4 * 4 + 1


def test_a_selection_does_not_take_up_the_rest_of_the_sweep(harness: SweepHarness) -> None:
    one, two = small_model("a/one"), small_model("b/two")
    harness.sweep(make_plan(one, two), no_publish=True)
    summary = harness.sweep(make_plan(one))
    assert summary.counts == {"published": 3}
    statuses = harness.statuses()
    assert all(statuses[cell.id] is not Status.PUBLISHED for cell in two.cells)


def test_two_slots_share_the_models(harness: SweepHarness) -> None:
    plan = make_plan(*[small_model(f"m/{number}") for number in range(6)])
    assert harness.sweep(plan, slots=3).counts == {"published": 18}
    assert harness.ran.count("export") == 6


def test_settings_that_rename_published_cells_are_refused(harness: SweepHarness) -> None:
    model = small_model()
    harness.sweep(make_plan(model))
    renamed = tuple(replace(cell, package="other") for cell in model.cells)
    with pytest.raises(StateError, match="another --stamp"):
        harness.sweep(make_plan(replace(model, cells=renamed)))


def test_exports_are_recorded_like_cells(harness: SweepHarness) -> None:
    model = small_model()
    harness.sweep(make_plan(model))
    outcome = harness.outcomes()[model.exports[0].id]
    assert (outcome.status, outcome.target) == (Status.PUBLISHED, "export")


def test_cells_with_an_opset_of_their_own_get_an_export_of_their_own(harness: SweepHarness) -> None:
    model = small_model()
    other = replace(model.cells[0], policy=replace(model.cells[0].policy, opset=13))
    plan = make_plan(replace(model, cells=(other, *model.cells[1:])))
    assert harness.sweep(plan).exit_code() is Exit.OK
    assert harness.ran.count("export") == 2
    trees = harness.versions()
    for export in plan.models[0].exports:
        assert trees[export.package, export.version]
    assert plan.models[0].exports[0].version.endswith("-opset13")


def test_a_package_kept_for_its_failure_gives_way_to_the_next_one(harness: SweepHarness) -> None:
    plan = make_plan(small_model(cells=1))
    cell = next(plan.cells())
    harness.verifier.doubts.add(cell.id)
    harness.sweep(plan)
    assert harness.begun is not None
    harness.state.retry(harness.begun.info.id)
    assert harness.sweep(plan).exit_code() is Exit.CELLS_FAILED
    assert harness.outcomes()[cell.id].status is Status.VERIFY_FAILED
