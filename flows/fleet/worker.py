"""`modelmill worker`: Prefect's workers with a preflight before and a drain behind them."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from flows.cli.settings import Settings
from flows.fleet.needs import Words, to_text, words_here
from flows.fleet.orders import VARIABLE as ORDERS
from flows.fleet.orders import Orders
from flows.fleet.slot import FOLDER, WORDS, state_url
from flows.fleet.upkeep import Upkeep
from flows.prefect.children import command
from flows.sweep.engines import slot_count
from flows.sweep.stop import Stop
from flows.sweep.workspace import Workspace
from matrix.errors import Exit, MillError, UsageError
from state.ledger import open_state
from workers.engines import find_engine, installed_engines
from workers.host.client import EngineHost
from workers.host.watch import HostLimits

_START_LIMIT = 120.0
_DEFAULTS = {
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    # Prefect asks for what is due by this machine's clock, which may be behind the server's.
    "PREFECT_WORKER_PREFETCH_SECONDS": "120",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}
SWEEPS = "-sweeps"
"""What the name of the pool of parents has behind that of the slots."""


class WorkerFailed(MillError):
    """This machine cannot take part, or not any more."""

    exit_code = Exit.UNUSABLE


@dataclass(slots=True)
class Worker:
    """This machine's part of a fleet."""

    settings: Settings
    pool: str
    engines: Sequence[str]
    more: Sequence[str] = ()
    sweeps: int = 1
    """How many parents may run here."""
    drain_limit: float = 1800.0
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def preflight(self, environ: Mapping[str, str]) -> Words:
        """Home, state, engines; returns what to announce."""
        if not environ.get("PREFECT_API_URL"):
            raise UsageError("a worker needs a Prefect server", hint="set PREFECT_API_URL")
        work = Workspace(self.settings)
        work.prepare()
        work.tidy()
        open_state(state_url(self.settings)).close()
        able = [name for name in self.engines or installed_engines() if self._answers(name)]
        if not able:
            raise WorkerFailed("no engine works on this machine", hint="see modelmill doctor")
        return words_here(self.settings, able, self.more)

    def _answers(self, name: str) -> bool:
        python = self.settings.engine_pythons.get(name)
        limits = HostLimits(start_timeout=_START_LIMIT, plan_timeout=_START_LIMIT)
        try:
            spec = find_engine(name, self.settings.cwd / python if python else None)
            host = EngineHost(spec, limits=limits, log_dir=Workspace(self.settings).logs)
            try:
                host.tools()
            finally:
                host.close()
        except MillError as error:
            if self.engines:
                raise
            print(f"engine {name} is not announced: {error.message}", flush=True)
            return False
        return True

    def serve(self, words: Words, queue: str, environ: Mapping[str, str], stop: Stop) -> None:
        """Take flow runs until the stop, then drain."""
        folders = Workspace(self.settings).home.absolute() / "fleet"
        _clear_dead(folders)
        folder = folders / uuid.uuid4().hex
        orders = Orders.make(folder)
        try:
            env = self._environment(words, folder, environ)
            name = f"{platform.node()}-{os.getpid()}"
            slots = slot_count(self.settings)
            self._start(folder, env, self.pool, queue, name, slots)
            if self.sweeps:
                self._start(folder, env, self.pool + SWEEPS, "", f"{name}-sweeps", self.sweeps)
            print(f"worker {name}: {slots} slots in {self.pool}/{queue}", flush=True)
            upkeep = Upkeep(self.settings)
            while not stop.wait(0.5):
                self._check(folder)
                if cleared := upkeep.if_due():
                    print(cleared, flush=True)
        finally:
            self._drain(orders)
            shutil.rmtree(folder, ignore_errors=True)

    def _environment(
        self, words: Words, folder: Path, environ: Mapping[str, str]
    ) -> dict[str, str]:
        (folder / "tmp").mkdir()
        return {
            **_DEFAULTS,
            **environ,
            **self.settings.variables(),
            ORDERS: str(folder),
            WORDS: to_text(words),
            FOLDER: str(self.settings.cwd.absolute()),
            "TMPDIR": str(folder / "tmp"),  # Prefect leaves a folder there for every killed run
        }

    def _start(
        self, folder: Path, env: dict[str, str], pool: str, queue: str, name: str, limit: int
    ) -> None:
        with (folder / f"{pool}.log").open("ab") as log:
            process = subprocess.Popen(
                command("flows.fleet.worker_process", pool, queue, name, str(limit)),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=env,
                cwd=folder,
                start_new_session=os.name == "posix",
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        self._processes.append(process)

    def _check(self, folder: Path) -> None:
        for process in self._processes:
            if process.poll() is not None:
                logs = [log.read_text("utf-8", "replace") for log in sorted(folder.glob("*.log"))]
                last = "; ".join(text.strip().splitlines()[-1] for text in logs if text.strip())
                raise WorkerFailed(
                    f"Prefect's worker ended: {last or 'without a word'}",
                    hint="see whether the server runs and the pool exists (modelmill deploy)",
                )

    def _drain(self, orders: Orders) -> None:
        """No new flow runs, no new models; what is at hand may finish, within limits."""
        orders.drain()
        for process in self._processes:
            assert process.stdin
            process.stdin.close()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
        working = orders.working()
        if working:
            print(f"draining: {len(working)} processes finish what they are at", flush=True)
        if not orders.wait_until_idle(self.drain_limit):
            orders.stop()
            orders.wait_until_idle(10.0)
        for pid in orders.working():
            with suppress(psutil.NoSuchProcess):
                process_ = psutil.Process(pid)
                for one in [*process_.children(recursive=True), process_]:
                    one.kill()


def _clear_dead(folders: Path) -> None:
    """What workers of this home left that were killed, unless their slots still finish."""
    for folder in folders.glob("*"):
        orders = Orders(folder)
        if not folder.suffix and orders.orphaned and not orders.working():
            shutil.rmtree(folder, ignore_errors=True)


def queue_name(words: Words) -> str:
    """One queue for all machines that are alike."""
    digest = hashlib.sha256(to_text(words).encode()).hexdigest()[:8]
    return f"{platform.system().lower()}-{digest}"
