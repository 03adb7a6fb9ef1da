"""Prefect's worker as a process that runs exactly as long as its standard input is open.

Started by `flows.fleet.worker` with the arguments FLOW POOL QUEUE NAME LIMIT. When the other end
closes, on purpose or because the process that started this one was killed, this process exits at
once.

Works around Prefect (test_a_worker_that_is_told_to_stop_kills_its_runs): a worker that Prefect
shuts down in the regular way kills its runs; one that just disappears lets them finish.

The worker runs one flow of ours and nothing else. Whoever can talk to the server could otherwise
run any command here: by the variables of a flow run, the template of the pool, the pull steps or
the entrypoint of a deployment. None of these is read. The environment of a run is this process's
own, so Prefect need not write it to a file (`workspace.json`) for a second process either.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

FLOWS = ("parent", "slot")


def main(flow: str, pool: str, queue: str, name: str, limit: str) -> None:
    """Serve a queue until standard input ends."""
    if flow not in FLOWS:
        raise SystemExit(f"a worker runs {' or '.join(FLOWS)}, not {flow}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_input, daemon=True).start()
    from prefect.cli import app

    run_only(flow)
    options = ["--type", "process", "--pool", pool, "--name", name, "--limit", limit]
    sys.argv = ["prefect", "worker", "start", *options]
    if queue:
        sys.argv += ["--work-queue", queue]
    app()
    os._exit(1)


def run_only(flow: str) -> None:
    """Have Prefect's worker start nothing but this flow, whatever the server says."""
    from prefect.utilities.processutils import command_to_string
    from prefect.workers import process

    entrypoint = f"modelmill.fleet:{flow}"

    class Job(process.ProcessJobConfiguration):
        def prepare_for_flow_run(self, *arguments: Any, **more: Any) -> None:
            self.command = command_to_string([sys.executable, "-m", "prefect.engine"])
            self.env = {"PREFECT__FLOW_ENTRYPOINT": entrypoint}
            self.working_dir = None
            super().prepare_for_flow_run(*arguments, **more)

    async def ours(_run: Any) -> Any:
        from prefect.flows import load_flow_from_entrypoint

        return load_flow_from_entrypoint(entrypoint)

    process.ProcessWorker.job_configuration = Job
    vars(process)["load_flow_from_flow_run"] = (
        ours  # what a worker asks after a cancellation or crash
    )


def _exit_with_input() -> None:
    # Not `sys.stdin`: Python aborts at its end if a thread holds the lock of that, and the abort
    # would be all that anybody learns of the reason.
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:6])
