"""A run's plan and settings through the state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.fleet.run import NoFleetRun, last_run, read_run, record_run
from flows.stop import Stop
from state.records import Kind
from tests.fleets.runs import begun

STOPPED = Stop()
STOPPED.ask()


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    with state:
        id_ = record_run(state, replace(run, again={"b", "a"}))
        read = read_run(state, run.sweep, id_, STOPPED)
        assert read.again == ["a", "b"]
        assert (read.plan, read.feed, read.id) == (run.plan, run.feed, id_)
        assert dict(read.newest) == dict(run.newest)
        assert last_run(state, run.sweep, "s").id == id_


def test_local_runs_are_no_runs_of_a_fleet(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    with state:
        local = state.note(run.sweep, Kind.STARTED, {"pid": 1})
        for other in (local, local + 1, 0):
            with pytest.raises(NoFleetRun):
                read_run(state, run.sweep, other, STOPPED)
        with pytest.raises(NoFleetRun, match="not started on a fleet"):
            last_run(state, run.sweep, "s")


def test_the_sweeps_settings_win_but_the_machine_keeps_its_places(tmp_path: Path) -> None:
    _state, run = begun(tmp_path)
    environ = {"MODELMILL_ENGINE": "other", "MODELMILL_HOME": "here", "MODELMILL_TRIES": "9"}
    settings = run.settings(environ, tmp_path)
    assert (settings.engine, settings.tries) == ("fake", 2)
    assert settings.precision == ("fp32",)
    assert settings.feed == "dir:/feed"
    assert settings.path(settings.home) == tmp_path / "here"
    _state.close()


@pytest.mark.parametrize(("here", "allowed"), [("", False), ("0", False), ("1", True)])
def test_strange_code_needs_the_consent_of_the_machine(
    here: str, allowed: bool, tmp_path: Path
) -> None:
    state, run = begun(tmp_path)
    state.close()
    settings = run.settings({"MODELMILL_ALLOW_REMOTE_CODE": here}, tmp_path)
    assert settings.allow_remote_code is allowed
