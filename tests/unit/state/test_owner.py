from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from state import owner
from state.owner import Owner, is_dead, started, this_host
from tests.unit.state.samples import NO_SUCH_PID


def test_this_process_lives() -> None:
    here = Owner.here("slot")
    assert here.pid == os.getpid()
    assert here.pid_started
    assert not is_dead(here.host, here.pid, here.pid_started)


def test_a_pid_that_is_gone_or_belongs_to_somebody_else_now_is_dead() -> None:
    assert is_dead(this_host(), NO_SUCH_PID, "1")
    assert is_dead(this_host(), os.getpid(), "started at another time")


def test_another_machine_is_never_proved_dead() -> None:
    assert not is_dead("elsewhere", NO_SUCH_PID, "1")


def test_in_doubt_a_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "started", lambda _pid: "")
    assert not is_dead(this_host(), os.getpid(), "1")
    monkeypatch.undo()
    assert not is_dead(this_host(), os.getpid(), "")


def test_the_portable_way_agrees() -> None:
    assert owner._started_elsewhere(NO_SUCH_PID) is None
    first = owner._started_elsewhere(os.getpid())
    assert first
    assert first == owner._started_elsewhere(os.getpid())


def test_a_process_that_may_not_be_looked_at_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "Process", refuse)
    assert owner._started_elsewhere(1) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_running_out_of_files_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_kw: object) -> str:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_text", full)
    assert started(os.getpid()) == ""
