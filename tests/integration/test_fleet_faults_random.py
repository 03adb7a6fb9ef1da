"""All faults in a seeded random order during one sweep, which must not show in what it makes."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from matrix.errors import Exit
from state.records import Holder
from tests.fleets.machines import LIMIT, Fleet, named, start_fleet
from tests.machine.timing import eventually
from tests.sweeps.command import Project, Ran, Running, model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]
SEED = int(os.environ.get("MODELMILL_TEST_SEED", "20260609"))
STAMP = "r"
MODELS = 24
CELLS = 8 * MODELS
MACHINES = ("a", "b", "c")


@dataclass
class Storm:
    """A sweep under way and what happens to it."""

    fleet: Fleet
    chance: random.Random
    catalog: str
    opened: ExitStack
    orders: list[Running] = field(default_factory=list)
    gates: int = 0
    """Models wait, each at its gate: so the faults meet a sweep that is not over, however slow
    or fast the machine is."""

    def open_gate(self) -> None:
        gate(self.fleet.project, self.gates).with_suffix(".go").touch()
        self.gates += 1

    def order(self, command: str = "resume") -> None:
        """Somebody asks for the sweep (once more)."""
        what = ("sweep", self.catalog, "--stamp", STAMP) if command == "sweep" else (command, STAMP)
        project = Project(self.fleet.project.folder, self.fleet.project.env)
        started = project.start(*self.fleet.project.fleet(*what))
        self.orders.append(self.opened.enter_context(started))

    def published(self) -> int:
        return self.fleet.project.statuses(STAMP).get("published", 0)

    def followed(self) -> bool:
        return any(order.popen.poll() is None for order in self.orders)

    def progress(self) -> None:
        """A model or a part of it more, or the end of whoever follows; somebody follows always."""
        before = self.published()
        self.open_gate()
        # The next one may be set aside by now; another gate helps.
        while not eventually(lambda: self.published() > before or not self.followed(), 60.0):
            self.open_gate()
        self.fleet.keep(*MACHINES)
        if not self.followed():
            self.order()

    def held(self) -> Holder | None:
        """Somebody who builds, by chance."""
        holders = [one for one in self.fleet.project.holders(STAMP) if psutil.pid_exists(one.pid)]
        return self.chance.choice(holders) if holders else None

    def tokens(self) -> set[int]:
        return {one.token for one in self.fleet.project.holders(STAMP)}

    def kill_slot(self) -> None:
        if one := self.held():
            kill(one.pid)

    def kill_host(self) -> None:
        if one := self.held():
            with suppress(psutil.NoSuchProcess):
                for host in named(psutil.Process(one.pid).children(recursive=True), "child.py")[:1]:
                    kill(host.pid)

    def stop_slot(self) -> None:
        """For longer than its lease."""
        if one := self.held():
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGSTOP)
                # Others hold models too, each at its gate: who asks for work takes it over.
                while not eventually(lambda: one.token not in self.tokens(), 15.0):
                    self.open_gate()
                    if not self.followed():
                        self.order()
                os.kill(one.pid, signal.SIGCONT)

    def kill_parent(self) -> None:
        kill(int((self.fleet.leader(STAMP).data or {})["pid"]))

    def kill_worker(self) -> None:
        self.fleet.machines[self.chance.choice(MACHINES)].running.signal(signal.SIGKILL)

    def stop_worker(self) -> None:
        self.fleet.machines[self.chance.choice(MACHINES)].running.signal(signal.SIGTERM)

    def lose_power(self) -> None:
        self.fleet.machines[self.chance.choice(MACHINES)].lose_power()

    def restart_prefect(self) -> None:
        self.fleet.prefect.stop()
        self.fleet.prefect.start()

    def restart_database(self) -> None:
        self.fleet.database.stop()
        self.fleet.database.start()

    def second_parent(self) -> None:
        self.order()

    def cancel(self) -> None:
        ran = self.fleet.run("cancel", STAMP)
        assert ran.code == 0, ran

    def interrupt(self) -> None:
        self.orders[-1].signal(signal.SIGINT)

    def faults(self) -> list[Callable[[], None]]:
        every = [
            self.kill_slot,
            self.kill_slot,
            self.kill_host,
            self.stop_slot,
            self.stop_slot,
            self.kill_parent,
            self.kill_worker,
            self.stop_worker,
            self.lose_power,
            self.restart_prefect,
            self.restart_database,
            self.second_parent,
            self.cancel,
            self.interrupt,
        ]
        self.chance.shuffle(every)
        return every

    def calm(self) -> Ran:
        """Go on until nothing is left: what was interrupted is resumed, what failed tried again."""
        while self.gates < MODELS:
            self.open_gate()
        while True:
            self.fleet.keep(*MACHINES)
            *_before, ran = [order.end(LIMIT) for order in self.orders if order.popen.stdout]
            self.orders.clear()
            if ran.code == Exit.OK:
                return ran
            assert ran.code in {Exit.CELLS_FAILED, Exit.INTERRUPTED}, ran
            self.order("retry" if ran.code == Exit.CELLS_FAILED else "resume")


def gate(project: Project, number: int) -> Path:
    return project.folder / f"gate{number}"


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def fleet(prefect_template: Path, tmp_path: Path) -> Iterator[Fleet]:
    with start_fleet(prefect_template, tmp_path / "works", MODELMILL_HEARTBEAT="2") as made:
        yield made


def test_a_random_sequence_of_all_of_it(fleet: Fleet) -> None:
    fleet.keep(*MACHINES)
    catalog = fleet.project.catalog(
        *(
            model(f"r/{n}", act={"quantize": f"wait:{gate(fleet.project, n)}"}, salt=n)
            for n in range(MODELS)
        )
    )
    with ExitStack() as opened:
        storm = Storm(fleet, random.Random(SEED), catalog, opened)
        storm.order("sweep")
        fleet.leader(STAMP)
        for fault in storm.faults():
            storm.progress()
            print(f"{storm.published():4} of {CELLS} published, now: {fault.__name__}", flush=True)
            assert storm.published() < CELLS
            fault()
        storm.calm()
    print(f"seed {SEED}: {len(fleet.lost(STAMP))} leases lost")
    fleet.check(catalog, STAMP)
    assert fleet.project.statuses(STAMP) == {"published": CELLS}
