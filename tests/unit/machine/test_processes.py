from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from machine import processes
from machine.processes import Process, started, this_host
from tests.machine.dead import NO_SUCH_PID


def test_this_process_lives() -> None:
    here = Process.current()
    assert here.pid == os.getpid()
    assert here.started
    assert not here.is_dead()


def test_a_pid_that_is_gone_or_belongs_to_somebody_else_now_is_dead() -> None:
    assert Process(this_host(), NO_SUCH_PID, "1").is_dead()
    assert replace(Process.current(), started="at another time").is_dead()


def test_another_machine_is_never_proved_dead() -> None:
    assert not Process("elsewhere", NO_SUCH_PID, "1").is_dead()


def test_in_doubt_a_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(Process.current(), started="1")
    monkeypatch.setattr(processes, "started", lambda _pid: "")
    assert not other.is_dead()
    monkeypatch.undo()
    assert not replace(other, started="").is_dead()


def test_the_portable_way_agrees() -> None:
    assert processes.started_elsewhere(NO_SUCH_PID) is None
    first = processes.started_elsewhere(os.getpid())
    assert first
    assert first == processes.started_elsewhere(os.getpid())


def test_a_process_that_may_not_be_looked_at_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "Process", refuse)
    assert processes.started_elsewhere(1) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_running_out_of_files_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_kw: object) -> str:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_text", full)
    assert started(os.getpid()) == ""


@pytest.mark.skipif(os.name == "nt", reason="there are no zombies there")
def test_a_zombie_is_dead() -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], dict(os.environ))
    when = started(pid) or ""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        assert Process(this_host(), pid, when).is_dead()
    finally:
        os.waitpid(pid, 0)
