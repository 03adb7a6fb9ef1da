"""Commands on sweeps where there is nothing for them to do say so, and change nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.cli.main import main
from flows.observe.summaries.document import LastRun, duration_of, summary_document
from flows.observe.summaries.markdown import markdown
from flows.run.resume import nothing_to_retry
from machine.shell import shell_word
from matrix.errors import Exit
from state.records import SweepInfo
from tests.states.reported import reported
from tests.states.samples import sql
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


def swept(harness: SweepHarness, **config: Any) -> SweepInfo:
    harness.sweep(make_plan(small_model("a/model", **config)))
    info = harness.state.find_sweep()
    assert info is not None
    return info


def test_cancel_of_a_finished_sweep_says_so_and_changes_nothing(
    harness: SweepHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    info = swept(harness)
    before = harness.state.last_event(info.id)
    assert main(["cancel", info.stamp, "--home", str(harness.root)]) == Exit.OK
    said = capsys.readouterr().out
    assert (
        said == f"sweep {info.stamp} has ended and has no open cell: there is nothing to cancel\n"
    )
    assert harness.state.last_event(info.id) == before
    assert harness.state.find_sweep() == info


def test_cancel_counts_the_cells_that_it_leaves(
    harness: SweepHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.stop.ask()
    info = swept(harness)
    assert main(["cancel", info.stamp, "--home", str(harness.root)]) == Exit.OK
    said = capsys.readouterr().out
    there = f"--home {shell_word(str(harness.root))}"
    resume = f"modelmill resume {there} {info.stamp}"
    assert said == f"sweep {info.stamp} is cancelled, 3 cells open: {resume}\n"
    assert main(["status", info.stamp, "--home", str(harness.root), "--json"]) == Exit.OK
    assert "--home" not in capsys.readouterr().out


def test_a_tuning_of_a_fleet_goes_on_as_a_tuning(
    harness: SweepHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.stop.ask()
    info = swept(harness)
    sql(harness.state, "UPDATE sweep SET settings = '{\"tuning\": {}}'")
    step = f"modelmill tune --resume {info.stamp} --fleet"
    for verb in ("resume", "retry"):
        assert main([verb, info.stamp, "--home", str(harness.root)]) == Exit.USAGE
        told = f"error: {info.stamp} is a tuning of a fleet (continue it: {step})\n"
        assert capsys.readouterr().err == told
    assert main(["cancel", info.stamp, "--home", str(harness.root)]) == Exit.OK
    said = capsys.readouterr().out
    assert said == f"sweep {info.stamp} is cancelled, 3 cells open: {step}\n"


def test_retry_of_a_green_sweep_says_that_nothing_failed(harness: SweepHarness) -> None:
    info = swept(harness)
    error = nothing_to_retry(harness.state, info)
    assert str(error) == f"no cell of sweep {info.stamp} has failed: there is nothing to retry"
    assert error.exit_code == Exit.NOTHING_SELECTED


def test_retry_of_an_interrupted_sweep_leads_to_resume(harness: SweepHarness) -> None:
    harness.stop.ask()
    info = swept(harness)
    assert f"3 cells open: modelmill resume {info.stamp}" in str(
        nothing_to_retry(harness.state, info)
    )


def test_retry_that_selects_none_of_the_failures_counts_them(harness: SweepHarness) -> None:
    info = swept(harness, act={"export": "fail:EXPORT"})
    said = str(nothing_to_retry(harness.state, info))
    assert "has 3 failed cells, but none of this selection" in said
    assert f"modelmill status {info.stamp} --failed" in said


def test_a_run_with_nothing_to_do_is_not_told_as_the_sweep(harness: SweepHarness) -> None:
    alone = duration_of(harness.state, swept(harness), ())
    first = duration_of(harness.state, swept(harness), harness.outcomes().values())
    assert (first.runs, first.idle) == (2, True)
    info = harness.state.find_sweep()
    assert info is not None
    told = summary_document(harness.state, info)
    assert " in 2 runs, the last of which had nothing to do: every cell" in markdown(told)
    assert told.seconds == told.to_json()["seconds"] == first.seconds
    assert first.seconds > alone.seconds
    heading = reported(harness.state, info)["heading"]
    assert (heading["seconds"], heading["runs"]) == (first.seconds, 2)


def test_a_clock_that_was_set_meanwhile_changes_no_duration(harness: SweepHarness) -> None:
    info = swept(harness)
    known = (
        LastRun.of(harness.state, info).seconds,
        duration_of(harness.state, info, ()).seconds,
    )
    for days in (40, -80):
        later = {"by": days * 86_400}
        sql(harness.state, "UPDATE sweep SET ended_at = ended_at + :by", **later)
        sql(harness.state, "UPDATE event SET at = at + :by WHERE kind = 'ended'", **later)
        info = _newest(harness)
        told = LastRun.of(harness.state, info)
        assert (told.seconds, duration_of(harness.state, info, ()).seconds) == known
        assert "d" not in str(told).partition(":")[0]


def test_a_single_run_is_told_as_before(harness: SweepHarness) -> None:
    told = summary_document(harness.state, swept(harness))
    assert (told.duration.runs, told.duration.idle) == (1, False)
    assert "runs" not in markdown(told)


def test_a_retry_that_builds_is_a_run_with_work(harness: SweepHarness) -> None:
    info = swept(harness, act={"export": "fail:EXPORT"})
    harness.state.retry(info.id)
    again = swept(harness, act={"export": "fail:EXPORT"})
    found = duration_of(harness.state, again, harness.outcomes().values())
    assert (found.runs, found.idle) == (2, False)


def test_status_narrows_by_globs_with_braces(
    harness: SweepHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    info = swept(harness)
    cells = sorted(harness.statuses())
    wanted = [cell for cell in cells if cell.endswith(("@qnn_npu", "@mlas_cpu"))]
    only = ["--only", "a/*@{qnn_npu,mlas_cpu}", "--json"]
    assert main(["status", info.stamp, "--home", str(harness.root), *only]) == Exit.OK
    told = json.loads(capsys.readouterr().out)
    assert wanted
    assert [one["cell"] for one in told["outcomes"]] == wanted


def test_the_last_run_is_told_with_what_it_built(harness: SweepHarness) -> None:
    plan = make_plan(small_model("a/model"))
    harness.sweep(plan)
    first = LastRun.of(harness.state, _newest(harness))
    assert (first.built, first.reused) == (len(harness.ran), _stages(harness) - len(harness.ran))
    assert f"{first.built} stages built, {first.reused} reused" in str(first)
    harness.sweep(plan)
    again = LastRun.of(harness.state, _newest(harness))
    assert (again.built, again.reused) == (0, 0)
    assert str(again).endswith(f": nothing built; report: modelmill report {plan.stamp}")


def _newest(harness: SweepHarness) -> SweepInfo:
    info = harness.state.find_sweep()
    assert info is not None
    return info


def _stages(harness: SweepHarness) -> int:
    return len(harness.state.stage_runs(_newest(harness).id))
