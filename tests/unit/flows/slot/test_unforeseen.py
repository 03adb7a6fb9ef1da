"""Errors that nobody foresaw: each ends its cell with a reason; nothing is tried without end."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from feed.interface import LocalFile, Published
from flows.settings.workspace import Workspace
from flows.slot.model_run import MOST_RUNS, ModelRun
from machine.processes import Process, ended_in_order, forget
from machine.waits import Cancelled
from matrix.errors import Exit
from matrix.status import FailureClass, Status
from state.errors import StateUnavailable
from tests.fakes.feed import MemoryFeed
from tests.machine.timing import eventually
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from workers.build.builder import Builder


class BrokenFeed(MemoryFeed):
    """One that raises something of its own for some versions."""

    def __init__(self, error: Exception, *, only: str = "") -> None:
        super().__init__()
        self.error = error
        self.only = only
        self.asked: list[str] = []

    def publish(
        self,
        package: str,
        version: str,
        files: Sequence[LocalFile],
        description: str,
        **how: Any,
    ) -> Published:
        self.asked.append(version)
        if self.only in version:
            raise self.error
        return super().publish(package, version, files, description, **how)


def test_a_bug_while_verifying_costs_that_cell_only(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(small_model("a/one"), small_model("b/two"))
    bad = next(plan.cells())
    verify = harness.verifier.verify

    def broken(built: Any, *how: Any) -> Any:
        if built.cell_id == bad.id:
            raise ZeroDivisionError("by nought")
        return verify(built, *how)

    monkeypatch.setattr(harness.verifier, "verify", broken)
    summary = harness.sweep(plan, slots=2)
    assert summary.exit_code() is Exit.CELLS_FAILED
    assert summary.counts == {"published": 5, "build_failed": 1}
    outcome = harness.outcomes()[bad.id]
    assert outcome.failure is FailureClass.UNKNOWN
    assert "ZeroDivisionError: by nought" in (outcome.message or "")
    assert "in broken" in (outcome.log_tail or "")
    log = Workspace(harness.settings()).log_of(plan.stamp, bad.id)
    assert "ZeroDivisionError" in log.read_text("utf-8")
    assert str(log) in (outcome.hint or "")
    assert harness.left_over() == []
    assert not harness.stop


def test_a_full_disk_while_publishing_ends_the_cell_as_that(harness: SweepHarness) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "azure/run-1")
    harness.feed = feed = BrokenFeed(full, only="mlas-cpu")
    plan = make_plan(small_model(cells=8))
    harness.sweep(plan)
    failed = [one for one in harness.outcomes().values() if one.status.failed]
    assert [(one.status, one.failure) for one in failed] == [
        (Status.PUBLISH_FAILED, FailureClass.DISK)
    ]
    assert "azure/run-1" in (failed[0].message or "")
    assert sum("mlas-cpu" in version for version in feed.asked) == 1
    assert harness.left_over() == []


def test_a_feed_that_raises_anything_else_fails_each_piece_once(harness: SweepHarness) -> None:
    harness.feed = feed = BrokenFeed(KeyError("manifestId"))
    summary = harness.sweep(make_plan(small_model()), no_publish=False)
    assert summary.exit_code() is Exit.CELLS_FAILED
    assert {one.failure for one in harness.outcomes().values()} == {FailureClass.UNKNOWN}
    assert len(feed.asked) == len(set(feed.asked)) == 4, "three cells and the export, once each"
    assert harness.left_over() == []


def test_a_bug_outside_of_any_cell_ends_all_of_the_model(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Builder) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Builder, "begin_model", broken)
    harness.sweep(make_plan(small_model()))
    assert {(one.status, one.failure) for one in harness.outcomes().values()} == {
        (Status.BUILD_FAILED, FailureClass.UNKNOWN)
    }
    assert all("out of order" in (one.message or "") for one in harness.outcomes().values())


def test_a_model_that_never_ends_is_given_up(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def cancelled(self: Builder, *_args: Any, **_how: Any) -> Any:
        raise Cancelled("though nobody asked for it")

    def counted(self: ModelRun, *args: Any, **how: Any) -> Any:
        runs.append(self.name)
        return run(self, *args, **how)

    run = ModelRun._build_and_publish
    monkeypatch.setattr(ModelRun, "_build_and_publish", counted)
    monkeypatch.setattr(Builder, "build", cancelled)
    harness.sweep(make_plan(small_model()))
    assert len(runs) == MOST_RUNS
    assert {one.failure for one in harness.outcomes().values()} == {FailureClass.UNKNOWN}
    assert all("unfinished" in (one.message or "") for one in harness.outcomes().values())


def test_an_error_of_the_state_stops_the_sweep(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: object, **_how: object) -> None:
        raise StateUnavailable("the database is away")

    monkeypatch.setattr(harness.state, "statuses", away)
    before = set(threading.enumerate())
    with pytest.raises(StateUnavailable):
        harness.sweep(make_plan(small_model("a/one"), small_model("b/two")), slots=2)
    assert harness.stop
    assert eventually(lambda: set(threading.enumerate()) <= before)


def test_a_package_that_cannot_be_kept_locally_is_published_all_the_same(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> Path:
        raise OSError(errno.EROFS, "Read-only file system", "/kept")

    monkeypatch.setattr("flows.slot.publishing.keep", refuse)
    assert harness.sweep(make_plan(small_model()), keep_local=True).counts == {"published": 3}
    told = [one.detail or {} for one in harness.outcomes().values()]
    assert all("/kept" in str(detail.get("not_kept")) for detail in told)


def test_a_process_that_cannot_hand_back_its_lease_notes_that_it_ends_in_order(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: Any, **_words: Any) -> bool:
        raise StateUnavailable("the state is away")

    me = Process.current()
    monkeypatch.setattr(type(harness.state), "release", away)
    with pytest.raises(StateUnavailable):
        harness.sweep(make_plan(small_model(cells=1)))
    assert ended_in_order(me)
    forget(me)
    assert not ended_in_order(me)
