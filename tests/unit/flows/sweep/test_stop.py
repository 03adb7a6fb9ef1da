from __future__ import annotations

import signal

import pytest

from feed.errors import Unauthorized
from flows.stop import Stop, stopped_by_signals
from matrix.errors import Exit


def test_the_first_reason_stays() -> None:
    stop = Stop()
    assert not stop
    stop.ask(Unauthorized("no"))
    stop.ask()
    assert stop
    assert stop.exit_code is Exit.HOST_CANNOT_PUBLISH


def test_a_stop_by_a_person_is_an_interruption() -> None:
    stop = Stop()
    stop.ask()
    assert stop.exit_code is Exit.INTERRUPTED
    assert stop.wait(60), "a stop must end every wait"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_ask_and_old_handlers_come_back(number: signal.Signals) -> None:
    stop, before = Stop(), signal.getsignal(number)
    with stopped_by_signals(stop):
        signal.raise_signal(number)  # on Windows, os.kill would end the process
        assert stop.wait(60)
    assert signal.getsignal(number) == before
