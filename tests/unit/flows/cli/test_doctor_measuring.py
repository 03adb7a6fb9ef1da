"""The doctor says whether the machine is quiet enough to measure."""

from __future__ import annotations

from pathlib import Path

from flows.cli.doctor import Health, quiet_finding
from machine.ledger import Ledger
from machine.reservations import DISTURBS


def test_the_doctor_says_whether_something_could_be_measured_now(tmp_path: Path) -> None:
    assert quiet_finding(Ledger(tmp_path)).health is Health.GOOD
    with Ledger(tmp_path).reserve([DISTURBS], "demo/bert-tiny export"):
        found = quiet_finding(Ledger(tmp_path))
    assert found.health is Health.NOTE
    assert "(demo/bert-tiny export)" in found.detail
