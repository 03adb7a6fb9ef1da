"""The documented notification, on a real Prefect server: a sweep ends, the webhook is called."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.prefect.server import healthy
from tests.machine.timing import eventually
from tests.services.webhook import Told, webhook
from tests.sweeps.command import ROOT, Project, model

SAMPLE = ROOT / "docs" / "samples" / "notify.py"
LIMIT = 60.0


@pytest.fixture
def hook() -> Iterator[tuple[str, Told]]:
    """A webhook on loopback and what it was told."""
    with webhook() as made:
        yield made


@pytest.fixture
def prefect(tmp_path: Path) -> Iterator[str]:
    """An ordinary server, as somebody runs it for good; the embedded one has no automations."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    home = tmp_path / "prefect-server"
    home.mkdir()
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--port", str(port), "--no-ui"],
            env={**kept, "PREFECT_HOME": str(home), "DO_NOT_TRACK": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}/api"
    try:
        assert eventually(lambda: healthy(url), LIMIT), (home / "log").read_text()
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_the_documented_notification_is_sent(
    project: Project, hook: tuple[str, Told], prefect: str
) -> None:
    address, told = hook
    env = {**project.environment(), "PREFECT_API_URL": prefect, "NOTIFY_URL": address}
    ran = subprocess.run(
        [sys.executable, str(SAMPLE)], env=env, cwd=project.folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    project.catalog(model(), model("tiny/bad", act={"quantize": "fail:QUANTIZE"}))
    swept = project.run(
        "sweep",
        "catalog.toml",
        "--stamp",
        "nightly",
        "--target",
        "qnn_npu",
        plain=False,
        PREFECT_API_URL=prefect,
    )
    assert swept.code == 1, swept
    message = told.get(timeout=LIMIT)
    assert message["title"] == "modelmill nightly: Failed"
    assert "1 published, 1 build failed" in message["text"]
    assert "QUANTIZE  tiny/bad:fill-mask@qnn_npu" in message["text"]
