"""A fleet on loopback: PostgreSQL, a Prefect server, workers as processes; and how to hurt them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psutil

from flows.fleet.parent import LEADS
from flows.prefect.server import ENVIRONMENT, free_port, healthy
from state.records import Event, Holder, Kind
from state.state import State, open_state
from tests.machine.timing import eventually
from tests.services.postgres import Server, postgres
from tests.sweeps.command import MARK, Project, Ran, Running

POOL = "mill"


@dataclass
class PrefectServer:
    """A server that can be stopped and started again where it was."""

    home: Path
    port: int = field(default_factory=free_port)
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def start(self) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT_")}
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.prefect.server_process", str(self.port)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**kept, **ENVIRONMENT, "PREFECT_HOME": str(self.home), **self.env},
            )
        assert eventually(lambda: healthy(self.url), 60.0)

    def stop(self) -> None:
        assert self.process
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)


class FleetProject(Project):
    """A folder to sweep in whose state and server are those of a fleet."""

    url = ""

    @cached_property
    def machines(self) -> Project:
        """What the workers are started from."""
        return Project(self.folder, self.env)

    def state(self) -> State:
        return open_state(self.url)

    @contextmanager
    def worker(self, name: str, *arguments: str, **env: str) -> Iterator[Running]:
        """A machine of its own: another home, the same feed."""
        options = ("--pool", POOL, "--engines", "fake,nothing", "--home", f"home-{name}")
        # Another mark: the end of a command of ours must not end the workers.
        with self.machines.start("worker", *options, *arguments, plain=False, **env) as running:
            running.until("slots in")
            yield running

    def fleet(self, *arguments: str) -> tuple[str, ...]:
        """A sweep on the fleet as arguments."""
        return (*arguments, "--fleet", "--pool", POOL)

    def events(self, stamp: str) -> list[Event]:
        sweep = self.sweep(stamp).id
        with self.state() as state:
            return list(state.events(sweep))

    def holders(self, stamp: str) -> list[Any]:
        with self.state() as state:
            info = state.find_sweep(stamp)
            return state.leases(info.id) if info else []

    def named(self, part: str) -> list[psutil.Process]:
        """Our processes whose command line has this."""
        return named(self.processes(), part)


def fleet_project(folder: Path, server: PrefectServer, url: str, **env: str) -> FleetProject:
    folder.mkdir()
    project = FleetProject(folder)
    project.url = url
    project.env = {
        "PREFECT_API_URL": server.url,
        "PREFECT_HOME": str(folder / "prefect-client"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "MODELMILL_STATE": url,
        "MODELMILL_FEED": str(project.feed_folder),
        "MODELMILL_JOBS": "1",
        "MODELMILL_HEARTBEAT": "4",
        "OMP_NUM_THREADS": "1",
        **env,
    }
    return project


@contextmanager
def prefect_server(template: Path, home: Path, **env: str) -> Iterator[PrefectServer]:
    """A Prefect server of one's own, from a migrated database."""
    server = PrefectServer(copied(template, home), env=env)
    server.start()
    try:
        yield server
    finally:
        server.stop()


LIMIT = 400.0
"""Seconds for anything that a whole fleet takes part in; a last resort, far above what it takes."""

_databases = count()


@dataclass
class Machine:
    """A worker with everything that it starts."""

    project: Project
    running: Running

    def slots(self) -> list[psutil.Process]:
        """The processes that run flows, parents among them."""
        return named(self.project.processes(), "prefect.engine")

    def lose_power(self) -> None:
        """All at once, as far as one process can."""
        for process in self.project.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def stop(self) -> Ran:
        """As a service manager does."""
        self.running.signal(signal.SIGTERM)
        return self.running.end(LIMIT)


@dataclass
class Fleet:
    """A set of servers, a folder to order sweeps from, and machines that come and go."""

    database: Server
    prefect: PrefectServer
    project: FleetProject
    opened: ExitStack
    machines: dict[str, Machine] = field(default_factory=dict)

    def machine(self, name: str, *arguments: str, under: Sequence[str] = (), **env: str) -> Machine:
        """Switch one on (`under`: a command that runs it); it takes part after `ready`."""
        project = Project(self.project.folder, {**self.project.env, **env})
        options = ("--pool", POOL, "--engines", "fake", "--home", f"home-{name}")
        running = self.opened.enter_context(
            project.start("worker", *options, *arguments, under=under)
        )
        made = self.machines[name] = Machine(project, running)
        return made

    def ready(self, *names: str) -> None:
        """Wait until they have joined."""
        for name in names:
            self.machines[name].running.until("slots in")

    def keep(self, *names: str) -> None:
        """Have these machines on, and no others."""
        for name, machine in self.machines.items():
            if name not in names:
                machine.lose_power()
        off = [
            name
            for name in names
            if name not in self.machines or self.machines[name].running.popen.poll() is not None
        ]
        for name in off:
            self.machine(name)
        self.ready(*off)

    def of(self, pid: int) -> str:
        """The machine on which a process runs."""
        for name, machine in self.machines.items():
            if pid in {process.pid for process in machine.project.processes()}:
                return name
        raise AssertionError(f"no machine runs {pid}")

    @contextmanager
    def sweep(self, catalog: str, stamp: str, *more: str) -> Iterator[Running]:
        """An order under way."""
        command = self.project.fleet("sweep", catalog, "--stamp", stamp, *more)
        with Project(self.project.folder, self.project.env).start(*command) as running:
            yield running

    def run(self, *arguments: str) -> Ran:
        """A command to its end; its own end does not end others."""
        with Project(self.project.folder, self.project.env).start(*arguments) as running:
            return running.end(LIMIT)

    def again(self, stamp: str, command: str = "resume") -> Ran:
        """Resume or retry, to the end."""
        return self.run(*self.project.fleet(command, stamp))

    def holder(self, stamp: str, model: str, after: int = 0) -> Holder:
        """Who has a model, under a later token than that."""

        def held() -> list[Holder]:
            return [
                one
                for one in self.project.holders(stamp)
                if one.model == f"{model}:fill-mask" and one.token > after
            ]

        wait_for(lambda: bool(held()))
        return held()[0]

    def leader(self, stamp: str, after: int = 0) -> Event:
        """The notice of the parent that leads, later than that one."""

        def leads() -> list[Event]:
            return [
                one for one in self.notices(stamp) if LEADS in (one.data or {}) and one.id > after
            ]

        wait_for(lambda: bool(leads()))
        return leads()[-1]

    def notices(self, stamp: str) -> list[Event]:
        with self.project.state() as state:
            info = state.find_sweep(stamp)
            return list(state.events(info.id, kind=Kind.NOTICE)) if info else []

    def lost(self, stamp: str) -> list[Event]:
        """Leases that ran out or whose holder died."""
        return [one for one in self.project.events(stamp) if one.kind is Kind.LOST]

    def wait_until(self, stamp: str, **counts: int) -> None:
        """Until so many cells, or more, have a status."""
        wait_for(
            lambda: all(
                self.project.statuses(stamp).get(status, 0) >= count
                for status, count in counts.items()
            )
        )

    def api(self) -> httpx.Client:
        """Prefect's, as a script would call it; a busy server takes its time."""
        return httpx.Client(base_url=self.prefect.url, timeout=60)

    def flow_runs(self, flow: str, sweep: int) -> list[dict[str, Any]]:
        """Of a sweep, as Prefect sees them."""
        body = {
            "flows": {"name": {"any_": [flow]}},
            "flow_runs": {"tags": {"all_": [f"sweep:{sweep}"]}},
        }
        with self.api() as api:
            return list(api.post("/flow_runs/filter", json=body).json())

    def check(self, catalog: str, stamp: str) -> None:
        """What an undisturbed sweep on one machine publishes, digests included, all of it once;
        and nobody recorded anything under a lease that another one had taken over."""
        alone = Project(self.project.folder / f"alone-{stamp}")
        alone.folder.mkdir()
        alone.ok("sweep", str(self.project.folder / catalog), "--stamp", stamp)
        expected = alone.published()
        index = expected.pop(("modelmill-index", f"0.0.0-{stamp}"))
        ours = self.project.published()
        ours = {key: tree for key, tree in ours.items() if of(stamp, key)}
        # A sweep that ended with failures had an index too; the newest one counts.
        indexes = sorted((key for key in ours if key[0] == "modelmill-index"), key=natural)
        assert ours[indexes[-1]] == index
        for key in indexes:
            del ours[key]
        assert ours == expected
        check_once(self.project.events(stamp))


def natural(key: tuple[str, str]) -> tuple[int, str]:
    """Revision 10 comes after revision 2, and both after the first."""
    return len(key[1]), key[1]


def of(stamp: str, key: tuple[str, str]) -> bool:
    """Whether a version belongs to a stamp."""
    return f"{key[1]}-".startswith(f"0.0.0-{stamp}-")


def check_once(events: list[Event]) -> None:
    """Every cell became published once, and tokens never went back."""
    became = Counter(
        one.cell
        for one in events
        if one.status == "published" and one.kind in {Kind.STATUS, Kind.SEEDED}
    )
    assert set(became.values()) == {1}
    tokens: dict[str, list[int]] = defaultdict(list)
    for one in events:
        if one.kind is Kind.STATUS and one.model and one.token:
            tokens[one.model].append(one.token)
    assert all(given == sorted(given) for given in tokens.values())


def wait_for(check: Callable[[], bool], within: float = LIMIT) -> None:
    assert eventually(check, within), "it did not come true"


def named(processes: list[psutil.Process], part: str) -> list[psutil.Process]:
    """Those whose command line has this."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if part in " ".join(process.cmdline()):
                found.append(process)
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended; nobody may have asked how yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def start_fleet(template: Path, folder: Path, **env: str) -> Iterator[Fleet]:
    """Servers that are up, a pool that is deployed, and no machine yet."""
    with (
        postgres() as database,
        prefect_server(template, folder / "prefect") as server,
        ExitStack() as opened,
    ):
        name = f"plant_{next(_databases)}"
        database.execute(f"CREATE DATABASE {name}")
        open_state(database.url(name)).close()
        project = fleet_project(folder / "project", server, database.url(name), **env)
        project.ok("deploy", "--pool", POOL, plain=False)
        yield Fleet(database, server, project, opened)


def copied(template: Path, home: Path) -> Path:
    shutil.copytree(template, home)
    return home


__all__ = ["MARK", "POOL", "FleetProject", "PrefectServer", "copied", "fleet_project"]
