"""Verification runs models, so it keeps out of the way of measurements as building does."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from machine.ledger import Ledger
from machine.reservations import DISTURBS, UNDISTURBED, VARIABLE
from matrix.status import Status
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from workers.build.built import Built
from workers.host.watch import Watching


def test_verification_waits_until_no_measurement_is_made(
    harness: SweepHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "machine"))
    ledger, pause = Ledger(), threading.Event()
    verify, disturbed = harness.verifier.verify, list[bool]()

    def verified(built: Built, *how: Watching) -> Built:
        disturbed.append(ledger.claim([UNDISTURBED]) is None)
        return verify(built, *how)

    monkeypatch.setattr(harness.verifier, "verify", verified)
    thread = threading.Thread(target=harness.sweep, args=(make_plan(small_model(cells=1)),))
    waits: list[str] = []
    with ledger.reserve([UNDISTURBED]):
        thread.start()
        while not waits:
            pause.wait(0.01)
            with ledger.everybody() as entries:
                waits = [ticket.what for entry in entries for ticket in entry.waiting]
        assert disturbed == []
    thread.join(60)
    assert waits[0].endswith("verify")
    assert disturbed == [True], "and no measurement begins meanwhile"
    assert set(harness.statuses().values()) == {Status.PUBLISHED}
    assert ledger.claim([DISTURBS]) is not None


def test_a_sweep_that_is_cancelled_waits_for_no_measurement(
    harness: SweepHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "machine"))
    ledger, pause = Ledger(), threading.Event()
    thread = threading.Thread(target=harness.sweep, args=(make_plan(small_model(cells=1)),))
    with ledger.reserve([UNDISTURBED]):
        thread.start()
        waiting = False
        while not waiting:
            pause.wait(0.01)
            with ledger.everybody() as entries:
                waiting = any(entry.waiting for entry in entries)
        harness.stop.ask()
        thread.join(60)
        assert not thread.is_alive()
    assert Status.BUILD_FAILED not in harness.statuses().values()
