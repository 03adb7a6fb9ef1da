"""What `modelmill worker` says when Prefect's worker ends below it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from flows.fleet.worker import Worker
from flows.settings.resolution import resolve
from flows.stop import Stop
from matrix.errors import Unusable


def reason(root: Path) -> str:
    """Serve until Prefect's worker ends; returns what is said of it."""
    settings = resolve({"home": str(root / "home")}, {}, root)
    worker = Worker(settings, "mill", (), sweeps=0)
    env = {**os.environ, "PREFECT_HOME": str(root), "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    with pytest.raises(Unusable) as raised:
        worker.serve(frozenset(), "queue", env, Stop())
    return raised.value.message


def test_the_reason_that_prefect_prints_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.fleet.worker.slot_count", lambda _settings: "many")
    assert reason(tmp_path) == (
        "Prefect's worker of the pool mill ended with exit code 2: Invalid value for --limit: "
        'unable to convert "many" into int.'
    )


@pytest.mark.skipif(os.name != "posix", reason="Windows has no signals")
@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGKILL, "was killed (SIGKILL), most likely because memory ran out: one / two"),
        (signal.SIGSEGV, "ended with signal SIGSEGV: one / two"),
    ],
)
def test_a_signal_is_told(
    number: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"import os; print('one\\ntwo', flush=True); os.kill(os.getpid(), {number})"
    monkeypatch.setattr(
        "flows.fleet.worker.module_command", lambda *_arguments: [sys.executable, "-c", code]
    )
    assert reason(tmp_path) == f"Prefect's worker of the pool mill {told}"
