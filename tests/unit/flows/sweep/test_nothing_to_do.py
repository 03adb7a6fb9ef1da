"""Commands on sweeps where there is nothing for them to do say so, and change nothing."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from flows.cli.main import main
from flows.observe.durations import LastRun, duration_of
from flows.observe.report.collect import collect
from flows.observe.summaries.document import summary_document
from flows.observe.summaries.markdown import markdown
from flows.sweep.resume import nothing_to_retry
from matrix.errors import Exit
from state.records import SweepInfo
from tests.sweeps.in_memory import Floor, make_plan, small_model


def swept(floor: Floor, **config: Any) -> SweepInfo:
    floor.sweep(make_plan(small_model("a/model", **config)))
    info = floor.state.find_sweep()
    assert info is not None
    return info


def test_cancel_of_a_finished_sweep_says_so_and_changes_nothing(
    floor: Floor, capsys: pytest.CaptureFixture[str]
) -> None:
    info = swept(floor)
    before = floor.state.last_event(info.id)
    assert main(["cancel", info.stamp, "--home", str(floor.root)]) == Exit.OK
    said = capsys.readouterr().out
    assert (
        said == f"sweep {info.stamp} has ended and has no open cell: there is nothing to cancel\n"
    )
    assert floor.state.last_event(info.id) == before
    assert floor.state.find_sweep() == info


def test_cancel_counts_the_cells_that_it_leaves(
    floor: Floor, capsys: pytest.CaptureFixture[str]
) -> None:
    floor.stop.ask()
    info = swept(floor)
    assert main(["cancel", info.stamp, "--home", str(floor.root)]) == Exit.OK
    said = capsys.readouterr().out
    there = f"--home {shlex.quote(str(floor.root))}"
    resume = f"modelmill resume {there} {info.stamp}"
    assert said == f"sweep {info.stamp} is cancelled, 3 cells open: {resume}\n"
    assert main(["status", info.stamp, "--home", str(floor.root), "--json"]) == Exit.OK
    assert "--home" not in capsys.readouterr().out


def test_retry_of_a_green_sweep_says_that_nothing_failed(floor: Floor) -> None:
    info = swept(floor)
    error = nothing_to_retry(floor.state, info)
    assert str(error) == f"no cell of sweep {info.stamp} has failed: there is nothing to retry"
    assert error.exit_code == Exit.NOTHING_SELECTED


def test_retry_of_an_interrupted_sweep_leads_to_resume(floor: Floor) -> None:
    floor.stop.ask()
    info = swept(floor)
    assert f"3 cells open: modelmill resume {info.stamp}" in str(
        nothing_to_retry(floor.state, info)
    )


def test_retry_that_selects_none_of_the_failures_counts_them(floor: Floor) -> None:
    info = swept(floor, act={"export": "fail:EXPORT"})
    said = str(nothing_to_retry(floor.state, info))
    assert "has 3 failed cells, but none of this selection" in said
    assert f"modelmill status {info.stamp} --failed" in said


def test_a_run_with_nothing_to_do_is_not_told_as_the_sweep(floor: Floor) -> None:
    swept(floor)
    first = duration_of(floor.state, swept(floor), floor.outcomes().values())
    assert (first.runs, first.idle) == (2, True)
    info = floor.state.find_sweep()
    assert info is not None
    told = summary_document(floor.state, info)
    assert " in 2 runs, the last of which had nothing to do: every cell" in markdown(told)
    assert told.seconds == told.to_json()["seconds"] == first.seconds
    assert first.seconds > (info.ended_at or 0) - info.begun_at
    heading = collect(floor.state, info).heading
    assert (heading.seconds, heading.runs) == (first.seconds, 2)


def test_a_single_run_is_told_as_before(floor: Floor) -> None:
    told = summary_document(floor.state, swept(floor))
    assert (told.duration.runs, told.duration.idle) == (1, False)
    assert "runs" not in markdown(told)


def test_a_retry_that_builds_is_a_run_with_work(floor: Floor) -> None:
    info = swept(floor, act={"export": "fail:EXPORT"})
    floor.state.retry(info.id)
    again = swept(floor, act={"export": "fail:EXPORT"})
    found = duration_of(floor.state, again, floor.outcomes().values())
    assert (found.runs, found.idle) == (2, False)


def test_status_narrows_by_globs_with_braces(
    floor: Floor, capsys: pytest.CaptureFixture[str]
) -> None:
    info = swept(floor)
    cells = sorted(floor.statuses())
    wanted = [cell for cell in cells if cell.endswith(("@qnn_npu", "@mlas_cpu"))]
    only = ["--only", "a/*@{qnn_npu,mlas_cpu}", "--json"]
    assert main(["status", info.stamp, "--home", str(floor.root), *only]) == Exit.OK
    told = json.loads(capsys.readouterr().out)
    assert wanted
    assert [one["cell"] for one in told["outcomes"]] == wanted


def test_the_last_run_is_told_with_what_it_built(floor: Floor) -> None:
    plan = make_plan(small_model("a/model"))
    floor.sweep(plan)
    first = LastRun.of(floor.state, _newest(floor))
    assert (first.built, first.reused) == (len(floor.ran), _stages(floor) - len(floor.ran))
    assert f"{first.built} stages built, {first.reused} reused" in str(first)
    floor.sweep(plan)
    again = LastRun.of(floor.state, _newest(floor))
    assert (again.built, again.reused) == (0, 0)
    assert str(again).endswith(f": nothing built; report: modelmill report {plan.stamp}")


def _newest(floor: Floor) -> SweepInfo:
    info = floor.state.find_sweep()
    assert info is not None
    return info


def _stages(floor: Floor) -> int:
    return len(floor.state.stage_runs(_newest(floor).id))
