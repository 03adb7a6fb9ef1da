"""Showing a run while neither a server nor the state takes anything."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.prefect import display
from flows.prefect import server as servers
from flows.prefect.display import Display
from flows.settings.resolution import resolve
from flows.stop import Stop
from flows.sweep.lifecycle import Sweep
from matrix.status import Status
from state.errors import StateError
from state.records import Event, Kind
from tests.sweeps.in_memory import make_plan, small_model


class Building:
    """A state in which a cell is built."""

    def __init__(self) -> None:
        self.told: list[dict[str, str]] = []
        self.at_once = self

    def events(self, sweep: int, after: int) -> list[Event]:
        return [building(sweep)] if after < 1 else []

    def note(self, _sweep: int, _kind: Kind, data: dict[str, str]) -> int:
        self.told.append(data)
        return 2


def building(sweep: int) -> Event:
    cell = "a:fill-mask@mlas_cpu"
    return Event(1, time.time(), sweep, cell, "a", Kind.STATUS, Status.BUILDING, 1, "me", None)


def showing(state: Any, home: Path, environ: dict[str, str]) -> Display:
    settings = resolve({"home": str(home)}, {}, home)
    sweep = Sweep(make_plan(small_model()), settings, state, cast("Any", None), Stop())
    sweep.info = cast("Any", SimpleNamespace(id=1))
    return Display(sweep, 0, "me", environ)


class SlowServer:
    """A server of ours that never comes to answer."""

    def __init__(self, trouble: str = "") -> None:
        self._trouble = trouble
        self.asked = threading.Event()
        self.lives = True

    def wait(self, cancel: threading.Event) -> None:
        self.asked.set()
        cancel.wait()

    def trouble(self) -> str:
        return self._trouble

    def stop(self, _limit: float = 5.0) -> None:
        self.lives = False


@pytest.mark.parametrize("trouble", ["", "the disk of HOME is full"])
def test_a_server_that_starts_more_slowly_than_the_work_ends_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    server, state = SlowServer(trouble), Building()
    monkeypatch.setattr(servers, "start_server", lambda *_all: server)
    monkeypatch.setattr(display, "LAST_WORDS", 0.1)
    with showing(state, tmp_path, {}) as shown:
        assert server.asked.wait(60)
    assert shown.problem == trouble
    assert state.told == ([{"unshown": trouble}] if trouble else [])
    assert not server.lives


class FullState:
    """A state on a full disk: it can be read, and nothing can be noted."""

    def __init__(self) -> None:
        self.noted = threading.Event()
        self.at_once = self

    def events(self, sweep: int, after: int) -> list[Event]:
        return [building(sweep)] if after < 1 else []

    def note(self, *_what: Any) -> int:
        self.noted.set()
        raise StateError("database or disk is full")


def test_a_state_that_takes_no_notice_does_not_end_the_display(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the server's folder belongs")
    state = FullState()
    environ = {"PREFECT_HOME": str(tmp_path / "taken")}
    with showing(state, tmp_path, environ) as shown:
        assert state.noted.wait(60)
    assert "taken cannot be written" in shown.problem
