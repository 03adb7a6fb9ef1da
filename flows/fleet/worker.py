"""`modelmill worker`: check this machine, run Prefect's workers, clean up, drain at the end."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from flows.fleet.run import state_url
from flows.fleet.worker_folder import CWD, FOLDER, WORDS, WorkerFolder
from flows.output.quantity import brief, counted, plain_text, show_size
from flows.packages.builder import place_of
from flows.plan.needs import words_here
from flows.settings.engines import engine_spec, slot_count
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.stop import Stop
from machine.children import describe_exit, family, kill, module_command, start
from machine.files import remove_tree
from matrix.errors import MillError, Unusable, UsageError
from matrix.needs import Words, to_text
from state.state import open_state
from workers.host.client import EngineHost
from workers.host.engines import installed_engines
from workers.host.watch import HostLimits
from workers.store import Store
from workers.store.folder import is_store

_START_LIMIT = 120.0
_LAST_LINES = 3
_LONGEST = 600
"""Characters of what a worker printed last."""
_DEFAULTS = {
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    # Works around Prefect (test_a_worker_asks_for_what_is_due_by_its_own_clock): that clock may be
    # behind the server's.
    "PREFECT_WORKER_PREFETCH_SECONDS": "120",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}
SWEEPS = "-sweeps"
"""The pool of parents is named as that of the slots, with this at the end. It is one of its own
because a parent would take a place from the slots that it waits for."""
PERIOD = 6 * 3600.0
"""Seconds between two clean-ups."""


@dataclass(slots=True)
class Worker:
    """This machine's part of a fleet."""

    settings: Settings
    pool: str
    engines: Sequence[str]
    sweeps: int = 1
    """How many parents may run here."""
    drain_limit: float = 1800.0
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """Prefect's workers, by pool."""

    def preflight(self, environ: Mapping[str, str]) -> Words:
        """Check home, state and engines; returns what to announce."""
        if not environ.get("PREFECT_API_URL"):
            raise UsageError("a worker needs a Prefect server", hint="set PREFECT_API_URL")
        place_of(self.settings, environ)
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
            remove_tree(folder)

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
        with _log(folder, pool).open("ab") as log:
            self._processes[pool] = start(
                module_command("flows.fleet.worker_process", flow, pool, *more),
                stdout=log,
                stderr=log,
                env=env,
                cwd=folder,
            )

    def _check(self, folder: Path) -> None:
        for pool, process in self._processes.items():
            if process.poll() is not None:
                raise _ended(pool, process.returncode, _log(folder, pool))

    def _drain(self, shared: WorkerFolder) -> None:
        """Take no flow runs and no models; let those at hand finish within the limit."""
        shared.drain()
        for process in self._processes.values():
            assert process.stdin
            process.stdin.close()
        for process in self._processes.values():
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


def _log(folder: Path, pool: str) -> Path:
    """What Prefect's worker of a pool prints."""
    return folder / f"{pool}.log"


def _ended(pool: str, code: int, log: Path) -> Unusable:
    """How Prefect's worker of a pool ended, and the last lines that it printed."""
    if code == -9:
        how = "was killed (SIGKILL), most likely because memory ran out"
        hint = "start it again, with fewer --jobs if memory is short"
    else:
        how = f"ended with {describe_exit(code)}"
        hint = "check that the server runs and the pool exists (modelmill deploy)"
    printed = plain_text(log.read_text("utf-8", "replace")).splitlines()
    unframed = (line.strip(" │") for line in printed if not line.startswith(("╭", "╰")))
    lines = list(filter(None, unframed))[-_LAST_LINES:]
    last = brief(" / ".join(lines), _LONGEST) or "it printed nothing"
    return Unusable(f"Prefect's worker of the pool {pool} {how}: {last}", hint=hint)


def remove_abandoned(folders: Path) -> None:
    """Remove the folders of killed workers of this home, unless their slots still finish."""
    for path in folders.glob("*"):
        folder = WorkerFolder(path)
        if not path.suffix and folder.orphaned and not folder.working():
            remove_tree(path)


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
