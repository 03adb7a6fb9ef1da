"""The files for service managers, checked by the tools that read them, where they are here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.sweeping import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_units(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    # The command need not be installed here; everything else is systemd's to judge.
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/modelmill/bin/modelmill", "/bin/true"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True
    )
    complaints = [line for line in ran.stderr.splitlines() if unit.name in line]
    assert (ran.returncode, complaints) == (0, [])


def test_a_stop_may_take_as_long_as_a_drain() -> None:
    text = (ROOT / "deploy/systemd/modelmill-worker.service").read_text()
    assert "--drain-limit 30m" in text
    assert "TimeoutStopSec=35min" in text
    assert "KillMode=mixed" in text
