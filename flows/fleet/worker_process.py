"""Prefect's worker as a process that lives exactly as long as its standard input.

Started by `flows.fleet.worker` with the arguments POOL QUEUE NAME LIMIT.
When the other end closes, on purpose or because its owner was killed, this process is gone at
once, without Prefect's farewell: that kills the running flows, while a process that is simply gone
leaves them alone, to finish their model and end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def main(pool: str, queue: str, name: str, limit: str) -> None:
    """Serve a queue until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, daemon=True).start()
    from prefect.cli import app

    options = ["--type", "process", "--pool", pool, "--name", name, "--limit", limit]
    sys.argv = ["prefect", "worker", "start", *options]
    if queue:
        sys.argv += ["--work-queue", queue]
    app()
    os._exit(1)


def _watch() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:5])
