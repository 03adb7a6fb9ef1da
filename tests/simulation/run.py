"""One run: some machines sweep a small catalog while a seed decides what fails and when."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

import flows.sweep.listing
from flows.settings.resolution import resolve
from flows.slot.context import Slot, SweepContext
from flows.slot.leases import LeaseRenewer
from flows.slot.slots import _lease_and_work, usual
from flows.stop import Stop
from flows.sweep.lifecycle import Sweep
from machine.files import remove_tree
from machine.processes import Process
from matrix.errors import MillError
from matrix.model import Plan
from state.records import Owner
from state.state import State, open_state
from tests.simulation import disks, services
from tests.simulation.building import Believing, SimulatedBuilder
from tests.simulation.rules import Rules
from tests.simulation.services import Service, SimulatedFeed
from tests.simulation.world import Machine, Program, Standstill, World
from tests.sweeps.in_memory import make_plan, small_model
from workers.store import Store

TTL = 60.0
BUSY = 200.0
"""Most sweeps are done after so many seconds if nothing fails; what fails does so until then."""
TROUBLE = 1800.0
"""Nothing fails any more after so many seconds: then the end must be reached."""


@dataclass
class Run:
    """What is there in one run."""

    seed: int
    root: Path
    world: World = field(init=False)
    machines: list[Machine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = world = World(self.seed)
        chance = world.random
        self.plan: Plan = make_plan(
            *(small_model(f"tiny/m{number}", chance.randint(1, 2)) for number in range(3))
        )
        self.database = Service(world)
        self.feed_service = Service(world)
        self.feed = SimulatedFeed(self.feed_service)
        self.state = _fresh_state(self.root / "state.db")
        services.follow_clock(self.state.database, world)
        self.rules = Rules(world, self.plan, self.feed, self.state)
        # On one machine a dead process is seen; of another machine's only the silence is heard.
        for number in range(chance.choice((1, 2, 2, 3))):
            self.machines.append(Machine(f"m{number}", self.root / f"m{number}"))
        self.patience = chance.choice((900.0, 900.0, 30.0))
        # One machine has a file on its own disk, several have a server.
        self.world.one_machine = len(self.machines) == 1
        self.database.flaky = not self.world.one_machine

    def go(self) -> list[str]:
        """Let it happen; returns the rules that were broken."""
        world = self.world
        self._plan_trouble()
        for machine in self.machines:
            for _ in range(world.random.choice((1, 1, 2))):
                world.at(world.random.uniform(0, 30), partial(self._start, machine))
        world.at(30.0, self._look_after)
        try:
            world.run(self._is_over)
        except Standstill as end:
            self.problems.append(f"{end}: {self.rules.open_cells()}")
        self.problems += self.rules.broken
        if not self.problems:
            self.problems += self.rules.at_the_end()
        self.problems += [f"{type(one).__name__}: {one}" for one in world.failures]
        return self.problems

    def close(self) -> None:
        """End what is left."""
        self.world.close()
        self.state.close()

    # What fails

    def _plan_trouble(self) -> None:
        chance, world = self.world.random, self.world
        for _ in range(0 if world.one_machine else chance.choice((0, 1, 1, 2))):
            begin = chance.uniform(5, BUSY)
            self.database.away.append((begin, begin + chance.choice((3.0, 50.0, 200.0, 1200.0))))
        for _ in range(chance.choice((0, 1, 2))):
            begin = chance.uniform(5, BUSY)
            self.feed_service.away.append((begin, begin + chance.choice((3.0, 60.0, 600.0))))
        trouble = (
            self._kill,
            self._kill,
            self._stall,
            self._power,
            self._step,
            self._gc,
            self._rot,
        )
        for _ in range(chance.choice((0, 2, 5, 9))):
            world.at(chance.uniform(5, BUSY), chance.choice(trouble))
        world.at(TROUBLE, self._calm)

    def _calm(self) -> None:
        self.database.flaky = self.feed_service.flaky = False

    def _living(self) -> list[Program]:
        return [one for one in self.world.programs if not one.dead]

    def _kill(self) -> None:
        if living := self._living():
            self._end(self.world.random.choice(living), "killed")

    def _end(self, program: Program, why: str) -> None:
        self.world.say(f"{program.machine.name}/{program.pid} is {why}")
        self.rules.dies(program)
        program.dead = True

    def _stall(self) -> None:
        if living := self._living():
            program = self.world.random.choice(living)
            longer = self.world.seconds + self.world.random.choice((20.0, 100.0, 400.0))
            until = max(program.stalled_until, longer)
            self.rules.stalls(program, until)
            program.stalled_until = until
            self.world.say(f"{program.machine.name}/{program.pid} stands still until {until:.0f}")

    def _power(self) -> None:
        """A machine loses its power and starts again, as another host to those that ask."""
        place = self.world.random.randrange(len(self.machines))
        machine = self.machines[place]
        for program in self._living():
            if program.machine is machine:
                self._end(program, "without power")
        disks.lose_unsynced(machine, self.world.random)
        again = Machine(f"{machine.name}'", machine.disk, machine.durable, intact=False)
        self.machines[place] = again

    def _step(self) -> None:
        """A clock is set: the server's, or that of one of the processes that share a file."""
        step = self.world.random.choice((-4000.0, -70.0, -20.0, 30.0, 4000.0))
        living = self._living()
        if not self.world.one_machine:
            self.world.clock_error += step
        for program in living[:1] if self.world.one_machine else living:
            program.clock_error += step
        self.world.say(f"a clock moves by {step:+.0f} s")

    def _gc(self) -> None:
        machine = self.world.random.choice(self.machines)
        if not (machine.disk / "store").exists():
            return
        program = self.world.program(machine)

        def collect() -> None:
            store = Store(machine.disk / "store")
            self.world.say(f"gc evicts {len(store.gc(0).evicted)}")
            store.close()
            program.dead = True

        self.world.spawn(program, collect)

    def _rot(self) -> None:
        disks.rot(self.world.random.choice(self.machines), self.world.random)

    # Who works

    def _look_after(self) -> None:
        """Somebody resumes where nothing runs any more."""
        for machine in self.machines:
            if not any(one.machine is machine for one in self._living()):
                self._start(machine)
        self.world.at(self.world.seconds + 120.0, self._look_after)

    def _start(self, machine: Machine) -> None:
        program = self.world.program(machine)

        def work() -> None:
            self.world.say("begins")
            try:
                self._sweep(program)
            except MillError as error:
                self.world.say(f"ends: {type(error).__name__}: {error}")
            program.dead = True

        self.world.spawn(program, work)

    def _sweep(self, program: Program) -> None:
        """As a sweep or a resume on a machine, and one that joins others."""
        world, disk = self.world, program.machine.disk
        state = services.state_for(
            self.state.database, self.database, self.rules.look, self.rules.taken, self.patience
        )
        settings = resolve({"home": str(disk)}, {}, disk)
        stop = Stop()
        sweep = Sweep(self.plan, settings, state, self.feed, stop, patience=300.0)
        sweep.begin()
        assert sweep.publisher is not None
        sweep.publisher.clock = lambda: world.seconds
        sweep.publisher.pauses._say = lambda _text: None
        renewer = LeaseRenewer(state, stop, TTL)
        context = SweepContext(sweep, renewer, services.Pool(world, program))  # type: ignore[arg-type]
        context.hub.clock = lambda: world.seconds
        store, work = Store(disk / "store"), disk / "work" / str(program.pid)
        slots = [
            Slot(
                Owner(f"slot-{number}", Process.current()),
                SimulatedBuilder(world, program, store, work, self.rules.bytes_are_lost),  # type: ignore[arg-type]
                Believing(),  # type: ignore[arg-type]
                Believing(),  # type: ignore[arg-type]
            )
            for number in range(2)
        ]
        for slot in slots:
            context.give_back(slot)
        world.spawn(program, renewer.work)
        failures: list[BaseException] = []

        def loop() -> None:
            try:
                _lease_and_work(context, usual)
            except Exception as error:  # noqa: BLE001 - as `run_slots` does it
                failures.append(error)
                stop.ask()

        tasks = [world.spawn(program, loop) for _ in range(2)]
        while not all(task.dead for task in tasks):
            world.pause(0.5)
        renewer.over.set()
        store.close()
        if failures:
            raise failures[0]
        sweep.finish()

    def _is_over(self) -> bool:
        if self.rules.broken or self.world.failures:
            return True
        if self.world.seconds < 60 or self._living():
            return False
        return self.rules.is_complete()


_TEMPLATE: list[bytes] = []


def _fresh_state(path: Path) -> State:
    """A new state; making the tables takes longer than a run does."""
    if not _TEMPLATE:
        with tempfile.TemporaryDirectory() as folder, open_state(Path(folder, "state.db")) as made:
            with made.database.raw() as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            _TEMPLATE.append(Path(folder, "state.db").read_bytes())
    path.write_bytes(_TEMPLATE[0])
    return open_state(path)


@contextmanager
def prepared(seed: int) -> Iterator[Run]:
    """A run that has not begun; the product sees its world while the block runs."""
    root = Path(tempfile.mkdtemp(prefix="modelmill-simulation-"))
    made = Run(seed, root)
    try:
        with ExitStack() as stack:
            stack.enter_context(made.world.in_force())
            stack.enter_context(disks.watched_disks(made.world))
            stack.enter_context(
                mock.patch.object(flows.sweep.listing, "ThreadPoolExecutor", services.Inline)
            )
            try:
                yield made
            finally:
                made.close()
    finally:
        remove_tree(root)


def run(seed: int) -> tuple[list[str], list[str]]:
    """What went wrong in the world of this seed, and its log."""
    with prepared(seed) as made:
        return made.go(), made.world.log
