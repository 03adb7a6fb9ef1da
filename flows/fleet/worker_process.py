"""Prefect's worker as a process that runs exactly as long as its standard input is open.

Started by `flows.fleet.worker` with the arguments POOL QUEUE NAME LIMIT. When the other end closes,
on purpose or because the process that started this one was killed, this process exits at once.

Works around Prefect (test_a_worker_that_is_told_to_stop_kills_its_runs): a worker that Prefect
shuts down in the regular way kills its runs; one that just disappears lets them finish.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def main(pool: str, queue: str, name: str, limit: str) -> None:
    """Serve a queue until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_input, daemon=True).start()
    from prefect.cli import app

    options = ["--type", "process", "--pool", pool, "--name", name, "--limit", limit]
    sys.argv = ["prefect", "worker", "start", *options]
    if queue:
        sys.argv += ["--work-queue", queue]
    app()
    os._exit(1)


def _exit_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:5])
