"""An engine host lives no longer than its owner, and its working folder is swept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from machine.scratch import sweep_dead
from tests.fakes.engine import SITE
from tests.machine.timing import eventually, patient

REPOSITORY = Path(__file__).parents[2]

OWNER = """
import sys
from pathlib import Path
from tests.fakes.engine import fake_spec, request
from workers.engine import StageJob
from workers.host.client import EngineHost

root = Path(sys.argv[1])
host = EngineHost(fake_spec(), log_dir=root / "logs")
host.tools()
(root / "out").mkdir()
action = sys.argv[2]
host.run(StageJob("export", {}, request(act={"export": action}), {}, root / "out"))
"""


@pytest.mark.parametrize("action", ["hang", "spawn:PID"])
def test_killing_the_owner_ends_the_host_in_mid_stage(tmp_path: Path, action: str) -> None:
    grandchild = tmp_path / "grandchild.pid"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), action.replace("PID", str(grandchild))],
        cwd=REPOSITORY,
        env={"PATH": "", "PYTHONPATH": str(SITE)},
    )
    try:
        marker = tmp_path / "out" / "half.bin"  # written by the stage just before it hangs
        assert eventually(lambda: marker.exists() or owner.poll() is not None, 60)
        assert owner.poll() is None
        (host,) = psutil.Process(owner.pid).children()
        family = [host, *host.children(recursive=True)]
        assert len(family) == (2 if grandchild.exists() else 1)
        owner.kill()
        owner.wait()
        assert psutil.wait_procs(family, timeout=patient(10))[1] == []
    finally:
        owner.kill()
        owner.wait()
    assert len(sweep_dead(tmp_path / "logs" / "scratch")) == 1
    assert [path.name for path in (tmp_path / "logs" / "scratch").iterdir()] == ["gate.lock"]
