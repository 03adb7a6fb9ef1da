"""Flows and tasks that use Prefect as it is, in processes of their own.

`python -m tests.fleets.plain_flows WHAT` prints what Prefect does, as JSON lines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from prefect import flow


@flow(persist_result=False)
def wait_for_release(folder: str) -> None:
    """Say who runs, and wait."""
    started, release = Path(folder, "started"), Path(folder, "release")
    started.write_text(str(os.getpid()), encoding="ascii")
    while not release.exists():
        time.sleep(0.1)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def cancelled_flow() -> None:
    """Cancel a flow as a runner does."""

    @flow(persist_result=False)
    def run() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.sleep(1)
        except BaseException as error:  # noqa: BLE001 - as Prefect's is none of Exception
            in_main = threading.current_thread() is threading.main_thread()
            say(cancelled=type(error).__name__, in_main=in_main)
            os._exit(0)

    run()


def temporary_server() -> None:
    """Prefect's own temporary server, until this process is killed."""
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    server.start()
    assert server.server_process
    say(pid=server.server_process.pid)
    time.sleep(3600)


if __name__ == "__main__":
    {"cancelled_flow": cancelled_flow, "temporary_server": temporary_server}[sys.argv[1]]()
