"""`modelmill worker`: check this machine, run Prefect's workers, drain them at the end."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from flows.cli.quantity import counted, show_size
from flows.cli.settings import Settings
from flows.fleet.run import state_url
from flows.fleet.worker_folder import CWD, FOLDER, WORDS, WorkerFolder
from flows.sweep.engines import engine_spec, slot_count
from flows.sweep.needs import words_here
from flows.sweep.stop import Stop
from flows.sweep.workspace import Workspace
from machine.children import family, kill, module_command, start
from matrix.errors import MillError, Unusable, UsageError
from matrix.needs import Words, to_text
from state.state import open_state
from workers.engines import installed_engines
from workers.host.client import EngineHost
from workers.host.watch import HostLimits
from workers.store import Store
from workers.store.folder import is_store

_START_LIMIT = 120.0
PERIOD = 6 * 3600.0
"""Seconds between two clean-ups."""
_DEFAULTS = {
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    # Works around Prefect (test_a_worker_asks_for_what_is_due_by_its_own_clock): that clock may be
    # behind the server's.
    "PREFECT_WORKER_PREFETCH_SECONDS": "120",
    # The limit of automations.crash_lost_runs is three of these.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}
SWEEPS = "-sweeps"
"""The pool of parents is named as that of the slots, with this at the end. It is one of its own
because a parent would take a place from the slots that it waits for."""


@dataclass(slots=True)
class Worker:
    """This machine's part of a fleet."""

    settings: Settings
    pool: str
    engines: Sequence[str]
    sweeps: int = 1
    """How many parents may run here."""
    drain_limit: float = 1800.0
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def preflight(self, environ: Mapping[str, str]) -> Words:
        """Check home, state and engines; returns what to announce."""
        if not environ.get("PREFECT_API_URL"):
            raise UsageError("a worker needs a Prefect server", hint="set PREFECT_API_URL")
        work = Workspace(self.settings)
        work.prepare()
        work.tidy()
        open_state(state_url(self.settings)).close()
        able = [name for name in self.engines or installed_engines() if self._answers(name)]
        if not able:
            raise Unusable("no engine works on this machine", hint="see modelmill doctor")
        benches = work.targets() if self.settings.bench_machine else ()
        return words_here(self.settings, able, self.settings.has, work.profiles(), benches)

    def _answers(self, name: str) -> bool:
        limits = HostLimits(start_timeout=_START_LIMIT, plan_timeout=_START_LIMIT)
        try:
            spec, logs = engine_spec(self.settings, name), Workspace(self.settings).logs
            with closing(EngineHost(spec, limits=limits, log_dir=logs)) as host:
                host.tools()
        except MillError as error:
            if self.engines:
                raise
            print(f"engine {name} is not announced: {error.message}", flush=True)
            return False
        return True

    def serve(self, words: Words, queue: str, environ: Mapping[str, str], stop: Stop) -> None:
        """Take flow runs until the stop, then drain."""
        folders = Workspace(self.settings).home.absolute() / "fleet"
        remove_abandoned(folders)
        shared = WorkerFolder.make(folders / uuid.uuid4().hex)
        folder = shared.path
        try:
            env = self._environment(words, folder, environ)
            name = f"{platform.node()}-{os.getpid()}"
            slots = slot_count(self.settings)
            self._start(folder, env, "slot", self.pool, queue, name, str(slots))
            if self.sweeps:
                sweeps = (self.pool + SWEEPS, "", f"{name}-sweeps", str(self.sweeps))
                self._start(folder, env, "parent", *sweeps)
            print(f"worker {name}: {slots} slots in {self.pool}/{queue}", flush=True)
            cleanup = Cleanup(self.settings)
            while not stop.wait(0.5):
                self._check(folder)
                if removed := cleanup.if_due():
                    print(removed, flush=True)
        finally:
            self._drain(shared)
            shutil.rmtree(folder, ignore_errors=True)

    def _environment(
        self, words: Words, folder: Path, environ: Mapping[str, str]
    ) -> dict[str, str]:
        (folder / "tmp").mkdir()
        return {
            **_DEFAULTS,
            **environ,
            **self.settings.variables(),
            FOLDER: str(folder),
            WORDS: to_text(words),
            CWD: str(self.settings.cwd.absolute()),
            # Works around Prefect (test_a_killed_run_leaves_its_temporary_folder).
            "TMPDIR": str(folder / "tmp"),
        }

    def _start(self, folder: Path, env: dict[str, str], flow: str, pool: str, *more: str) -> None:
        with (folder / f"{pool}.log").open("ab") as log:
            process = start(
                module_command("flows.fleet.worker_process", flow, pool, *more),
                stdout=log,
                stderr=log,
                env=env,
                cwd=folder,
            )
        self._processes.append(process)

    def _check(self, folder: Path) -> None:
        for process in self._processes:
            if process.poll() is not None:
                logs = [log.read_text("utf-8", "replace") for log in sorted(folder.glob("*.log"))]
                last = "; ".join(text.strip().splitlines()[-1] for text in logs if text.strip())
                raise Unusable(
                    f"Prefect's worker ended: {last or 'it wrote no reason'}",
                    hint="check that the server runs and the pool exists (modelmill deploy)",
                )

    def _drain(self, shared: WorkerFolder) -> None:
        """Take no flow runs and no models; let those at hand finish within the limit."""
        shared.drain()
        for process in self._processes:
            assert process.stdin
            process.stdin.close()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
        working = shared.working()
        if working:
            print(f"draining: {len(working)} processes finish what they are doing", flush=True)
        if not shared.wait_until_idle(self.drain_limit):
            shared.stop()
            shared.wait_until_idle(10.0)
        for pid in shared.working():
            kill(family(pid))


def remove_abandoned(folders: Path) -> None:
    """Remove the folders of killed workers of this home, unless their slots still finish."""
    for path in folders.glob("*"):
        folder = WorkerFolder(path)
        if not path.suffix and folder.orphaned and not folder.working():
            shutil.rmtree(path, ignore_errors=True)


def queue_name(words: Words) -> str:
    """The queue of all machines that announce the same."""
    digest = hashlib.sha256(to_text(words).encode()).hexdigest()[:8]
    return f"{platform.system().lower()}-{digest}"


@dataclass(slots=True)
class Cleanup:
    """Removes old stage results, old logs and leftovers of killed runs from one home folder.

    A machine of a fleet builds unattended for months, so its disk would fill up. Results that
    running builds use stay, and so do packages that were kept for inspection (conflicts, failed
    verification).
    """

    settings: Settings
    _next: float = field(default_factory=time.monotonic)

    def if_due(self) -> str | None:
        """Clean up if the time has come; returns what was removed, if anything."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + PERIOD
        return self.clean(time.time() - self.settings.retention)

    def clean(self, since: float) -> str | None:
        """Remove what was not used since then, and what exceeds the disk budget."""
        work = Workspace(self.settings)
        work.tidy()
        removed = [*_results(work, self.settings.disk_budget, since), *_logs(work.logs, since)]
        return f"removed {' and '.join(removed)}" if removed else None


def _results(work: Workspace, budget: int | None, since: float) -> Iterator[str]:
    if not is_store(work.store):
        return
    with closing(Store(work.store)) as store:
        report = store.gc(budget or math.inf, since)
    if report.evicted:
        yield f"{counted(len(report.evicted), 'stage result')} ({show_size(report.freed)})"


def _logs(folder: Path, since: float) -> Iterator[str]:
    removed = 0
    for path in folder.rglob("*.log*"):
        with suppress(OSError):  # held open on Windows, or gone meanwhile
            if path.is_file() and path.stat().st_mtime < since:
                path.unlink()
                removed += 1
    if removed:
        yield counted(removed, "log")
