"""Showing a run while neither a server nor the state takes anything."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, cast

from flows.observe.progress import SweepProgress
from flows.prefect.display import Display, Where
from flows.sweep.stop import Stop
from matrix.status import Status
from state.errors import StateError
from state.records import Event, Kind
from state.state import State
from tests.sweeps.in_memory import make_plan, small_model


class FullState:
    """A state on a full disk: it can be read, and nothing can be noted."""

    def __init__(self) -> None:
        self.noted = threading.Event()

    def events(self, sweep: int, after: int) -> list[Event]:
        cell = "a:fill-mask@mlas_cpu"
        building = Status.BUILDING
        made = Event(1, time.time(), sweep, cell, "a", Kind.STATUS, building, 1, "me", None)
        return [made] if after < 1 else []

    def note(self, *_what: Any) -> int:
        self.noted.set()
        raise StateError("database or disk is full")


def test_a_state_that_takes_no_notice_does_not_end_the_display(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the server's folder belongs")
    state = FullState()
    where = Where(cast("State", state), 1, 0, "me")
    environ = {"PREFECT_HOME": str(tmp_path / "taken")}
    with Display(
        where, make_plan(small_model()), SweepProgress({}), Stop(), tmp_path, environ
    ) as display:
        assert state.noted.wait(30)
    assert "taken cannot be written" in display.problem
