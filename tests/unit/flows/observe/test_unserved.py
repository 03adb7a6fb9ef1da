"""Why a sweep of a fleet stands still."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.fleet.run import record_run
from flows.observe.progress import SweepProgress
from flows.observe.unserved import NOT_TAKEN_UP, UNSERVED, unserved_groups, unserved_of
from flows.plan.recorded import note_plan
from matrix.needs import measuring
from matrix.status import Status
from state.records import Facts, Kind
from state.state import open_state
from tests.fleets.runs import begun
from tests.states.samples import ALIVE, TREE, begin, rows

GROUP = {
    "needs": ["engine:winml", "os:windows", "remote-code"],
    "missing": ["os:windows", "remote-code"],
    "machines": 2,
    "cells": ["a", "b", "c", "d", "e"],
    "count": 7,
}


def test_an_order_that_no_parent_has_taken_up(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    with state:
        assert unserved_of(state, run.sweep).lines() == []  # a local run, about to start
        record_run(state, run)
        found = unserved_of(state, run.sweep)
        assert found.fleet
        assert found.lines() == [NOT_TAKEN_UP]
        note_plan(state, run.sweep, run.plan)
        assert unserved_of(state, run.sweep).lines() == []


def test_what_nobody_alive_can_build_is_told_with_the_next_step(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    with state:
        record_run(state, run)
        note_plan(state, run.sweep, run.plan)
        state.note(run.sweep, Kind.NOTICE, {UNSERVED: [GROUP]})
        assert unserved_of(state, run.sweep).lines() == [
            "7 cells wait for a machine that offers os:windows and remote-code (a, b, c, ...)",
            (
                "  next: start modelmill worker --allow-remote-code on a machine with"
                " engine:winml os:windows"
            ),
        ]
        state.note(run.sweep, Kind.NOTICE, {UNSERVED: []})
        assert unserved_of(state, run.sweep).lines() == []


def test_no_machine_at_all_and_a_single_model(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    alone = {**GROUP, "machines": 0, "cells": ["a"], "count": 1}
    with state:
        record_run(state, run)
        note_plan(state, run.sweep, run.plan)
        state.note(run.sweep, Kind.NOTICE, {UNSERVED: [alone]})
        assert unserved_of(state, run.sweep).lines()[0] == "1 cell waits: no worker is alive (a)"


def test_a_new_run_forgets_what_an_older_one_waited_for(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    with state:
        record_run(state, run)
        note_plan(state, run.sweep, run.plan)
        state.note(run.sweep, Kind.NOTICE, {UNSERVED: [GROUP]})
        state.begin("s", "dir:x", [], {}, {}, {})
        note_plan(state, run.sweep, run.plan)
        assert unserved_of(state, run.sweep).lines() == []
        state.note(run.sweep, Kind.STARTED, {"pid": 1})
        assert not unserved_of(state, run.sweep).fleet


def test_who_follows_the_events_is_told_too(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    with state:
        progress = SweepProgress({})
        for unserved, told in (([GROUP], "7 cells wait"), ([], "")):
            state.note(run.sweep, Kind.NOTICE, {UNSERVED: unserved})
            notice = state.newest_event(run.sweep, Kind.NOTICE)
            assert notice is not None
            progress.apply(notice)
            assert progress.remarks.startswith(told)
        progress.notice = "nobody is at work"
        assert progress.remarks == "nobody is at work"


def test_a_local_run_leaves_what_this_machine_does_not_offer(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    needs = frozenset({"engine:fake"})
    with state:
        state.note(run.sweep, Kind.STARTED, {"pid": 1})
        for offers, line in (
            ({"os:linux"}, "on a machine that offers engine:fake: modelmill resume s"),
            ({"engine:fake"}, ""),
        ):
            groups = unserved_groups(state, run.sweep, [needs], [frozenset(offers)])
            state.note(run.sweep, Kind.NOTICE, {UNSERVED: groups})
            found = unserved_of(state, run.sweep).lines()
            assert found[1:] == ([f"  next: {line}"] if line else [])
        own = [{"needs": ["lab", "remote-code"], "machines": 1, "cells": ["a"], "count": 1}]
        state.note(run.sweep, Kind.NOTICE, {UNSERVED: own})
        assert unserved_of(state, run.sweep).lines() == [
            "1 cell waits for a machine that offers lab and remote-code (a)",
            "  next: modelmill resume s --allow-remote-code --has lab",
        ]


def test_a_machine_with_an_emulator_alone_is_told_the_flag(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    needs = frozenset({"engine:fake", "compile:htp73"})
    machine = frozenset({"engine:fake", "compile-emulated:htp73"})
    with state:
        for offers, step in (
            (machine, "modelmill resume s --emulated"),
            (
                frozenset({"engine:fake"}),
                "on a machine that offers compile:htp73: modelmill resume s",
            ),
            (
                frozenset({"compile-emulated:htp73"}),
                "on a machine that offers compile:htp73 and engine:fake: modelmill resume s",
            ),
        ):
            groups = unserved_groups(state, run.sweep, [needs], [offers])
            state.note(run.sweep, Kind.NOTICE, {UNSERVED: groups})
            assert unserved_of(state, run.sweep).lines()[1] == f"  next: {step}"


def test_benchmarks_that_wait_for_a_device_are_told_with_the_next_step(tmp_path: Path) -> None:
    npu = measuring("qnn", "npu", emulated=False)
    with open_state(tmp_path / "state.db") as state:
        cells = [replace(row, needs=("engine:fake",), bench=(npu,)) for row in rows(1)]
        info = begin(state, cells)
        offers = frozenset({"engine:fake"})
        assert unserved_groups(state, info.id, [frozenset({npu})], [offers])[0]["count"] == 0
        held = state.lease(info.id, ALIVE, 60.0)
        assert held is not None
        for row in cells:
            state.record(held, info.id, row.cell, Status.PUBLISHED, Facts(tree=TREE))
        groups = unserved_groups(state, info.id, [frozenset({npu})], [offers])
        state.note(info.id, Kind.NOTICE, {UNSERVED: groups})
        what, step = unserved_of(state, info.id).lines()
        assert what.startswith("2 benchmarks wait for a machine that offers bench:qnn/npu (")
        assert step == "  next: on a machine that offers bench:qnn/npu: modelmill resume 20260609"
        on_fleet = replace(unserved_of(state, info.id), fleet=True)
        assert on_fleet.lines()[1] == (
            "  next: start modelmill worker --bench-machine on a machine with bench:qnn/npu"
        )
