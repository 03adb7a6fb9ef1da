"""A run's plan and settings through the state."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.fleet.ticket import NoTicket, last_ticket, read_ticket, write_ticket
from flows.sweep.stop import Stop
from state.records import Kind
from tests.fleets.tickets import begun

STOPPED = Stop()
STOPPED.ask()


def test_a_ticket_is_read_as_it_was_written(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    with state:
        run = write_ticket(state, ticket)
        read = read_ticket(state, ticket.sweep, run, STOPPED)
        assert (read.plan, read.feed, read.run) == (ticket.plan, ticket.feed, run)
        assert dict(read.newest) == dict(ticket.newest)
        assert last_ticket(state, ticket.sweep, "s").run == run


def test_other_runs_are_no_tickets(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    with state:
        local = state.note(ticket.sweep, Kind.STARTED, {"pid": 1})
        for run in (local, local + 1, 0):
            with pytest.raises(NoTicket):
                read_ticket(state, ticket.sweep, run, STOPPED)
        with pytest.raises(NoTicket, match="not started on a fleet"):
            last_ticket(state, ticket.sweep, "s")


def test_the_sweeps_settings_win_but_the_machine_keeps_its_places(tmp_path: Path) -> None:
    _state, ticket = begun(tmp_path)
    environ = {"MODELMILL_ENGINE": "other", "MODELMILL_HOME": "here", "MODELMILL_TRIES": "9"}
    settings = ticket.settings(environ, tmp_path)
    assert (settings.engine, settings.tries) == ("fake", 2)
    assert settings.precision == ("fp32",)
    assert settings.feed == "dir:/feed"
    assert settings.path(settings.home) == tmp_path / "here"
    _state.close()


@pytest.mark.parametrize(("here", "allowed"), [("", False), ("0", False), ("1", True)])
def test_strange_code_needs_the_consent_of_the_machine(
    here: str, allowed: bool, tmp_path: Path
) -> None:
    state, ticket = begun(tmp_path)
    state.close()
    settings = ticket.settings({"MODELMILL_ALLOW_REMOTE_CODE": here}, tmp_path)
    assert settings.allow_remote_code is allowed
