"""The simulated world: a virtual clock, processes on machines, and turns chosen by a seed.

A task is a greenlet. It runs until it waits; then the task whose time comes first goes on. What
waits in the product waits here: `time.sleep`, conditions (and with them events, semaphores and
queues), and the processor time that `pause` stands for. Outside tasks all of these are the real
ones, so that threads of the test runner do not notice.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from greenlet import GreenletExit, getcurrent, greenlet

import flows.slot.slots
import machine.processes
import state.leases
from machine.processes import Process

EPOCH = 1_800_000_000.0
"""What the clocks of the world say at its beginning, in seconds."""
POLL = 0.25
"""Seconds between two looks of a task that waits for another one."""
LONGEST = 3600.0
"""No run takes so long: what does has come to a standstill."""


class Standstill(Exception):
    """The world did not reach its end."""


@dataclass(eq=False)
class Machine:
    """A host with a disk of its own."""

    name: str
    disk: Path
    durable: set[tuple[int, int, int]] = field(default_factory=set)
    """Files whose content has reached the disk: inodes are used again, so time and size too."""
    intact: bool = True
    """Its disk has lost nothing."""


@dataclass(eq=False)
class Program:
    """A process of the world. `dead` ones never run again; stalled ones run later."""

    machine: Machine
    pid: int
    dead: bool = False
    stalled_until: float = 0.0
    ended_in_order: bool = False
    clock_error: float = 0.0
    """How far its clock is from that of the world."""
    tasks: list[greenlet] = field(default_factory=list)

    @property
    def process(self) -> Process:
        """As the product knows it."""
        return Process(self.machine.name, self.pid, str(self.pid))


class World:
    """Clock, turns and processes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seconds = 0.0
        self.clock_error = 0.0
        """How far the clock of the database is off."""
        self.one_machine = False
        """The state is a file on the disk of the only machine."""
        self.over = False
        self.programs: list[Program] = []
        self.log: list[str] = []
        self.failures: list[BaseException] = []
        self._turns: list[tuple[float, int, greenlet | Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._program_of: dict[greenlet, Program] = {}
        self._pids = itertools.count(100)
        self._marks = itertools.count(1)

    def now(self) -> float:
        """The clock of the database: a server has one, of a file each process brings its own."""
        return EPOCH + self.seconds + (self.here.clock_error if self.here else self.clock_error)

    def say(self, text: str) -> None:
        """A line of the log."""
        here = self.here
        who = f"{here.machine.name}/{here.pid}" if here else "world"
        self.log.append(f"{self.seconds:10.3f} {who:>8} {text}")

    @property
    def here(self) -> Program | None:
        """The process that runs; None: the world itself."""
        return self._program_of.get(getcurrent())

    def program(self, machine: Machine) -> Program:
        """A new process."""
        self.programs.append(Program(machine, next(self._pids), clock_error=self.clock_error))
        return self.programs[-1]

    def spawn(self, program: Program, work: Callable[[], Any]) -> greenlet:
        """A task of a process, which begins soon."""

        def run() -> None:
            try:
                work()
            except GreenletExit:
                pass
            except BaseException as error:  # noqa: BLE001 - the run looks at them
                self.failures.append(error)

        task = greenlet(run)
        self._program_of[task] = program
        program.tasks.append(task)
        self._later(self.random.uniform(0, 0.05), task)
        return task

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen at a moment of the world."""
        self._later(max(0.0, seconds - self.seconds), action)

    def _later(self, seconds: float, what: greenlet | Callable[[], None]) -> None:
        heapq.heappush(self._turns, (self.seconds + seconds, next(self._numbers), what))

    def pause(self, seconds: float = 0.0) -> None:
        """Let others run; nobody wakes up at exactly the moment that it asked for."""
        task = getcurrent()
        if task not in self._program_of:
            return
        if self.over:
            raise GreenletExit
        self._later(seconds + self.random.uniform(0.0, 0.02), task)
        self._hub.switch()
        if self.over:
            raise GreenletExit

    def run(self, finished: Callable[[], bool]) -> None:
        """Let tasks take turns until the world has reached its end."""
        self._hub = getcurrent()
        while self._turns and not finished():
            moment, _number, what = heapq.heappop(self._turns)
            if moment > LONGEST:
                break
            self.seconds = max(self.seconds, moment)
            if not isinstance(what, greenlet):
                what()
                continue
            program = self._program_of[what]
            if program.dead or what.dead:
                continue
            if program.stalled_until > self.seconds:
                self._later(program.stalled_until - self.seconds, what)
                continue
            what.switch()
        if not finished():
            raise Standstill(f"nothing happens any more after {self.seconds:.0f} s")

    def close(self) -> None:
        """End all tasks without a trace: whatever they call now ends them."""
        self.over = True
        for task in list(self._program_of):
            if not task.dead:
                task.throw(GreenletExit)

    def mark(self) -> float:
        """A time for a file that is later than all before it, the same in every run."""
        return EPOCH + next(self._marks) / 1000

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Let the product see this world's time, chance and processes."""
        patches = [*self._of_time(), *self._of_processes()]
        patches += [(random, name, getattr(self.random, name)) for name in ("uniform", "random")]
        patches.append((uuid, "uuid4", lambda: uuid.UUID(int=self.random.getrandbits(128))))
        with ExitStack() as stack:
            for where, name, made in patches:
                stack.enter_context(mock.patch.object(where, name, made))
            yield

    def _of_time(self) -> list[tuple[Any, str, Any]]:
        """What waits waits here; threads that are none of the world's have the real time."""
        real_wait, real_sleep, real_time = threading.Condition.wait, time.sleep, time.monotonic

        def wait(condition: Any, timeout: float | None = None) -> bool:
            if self.here is None:
                return real_wait(condition, timeout)
            waiter = threading.Lock()
            waiter.acquire()
            condition._waiters.append(waiter)
            saved, until = condition._release_save(), self.seconds + (timeout or LONGEST)
            try:
                while not waiter.acquire(blocking=False):
                    if self.seconds >= until:
                        return False
                    self.pause(min(POLL, max(0.0, until - self.seconds)))
                return True
            finally:
                condition._acquire_restore(saved)
                if waiter in condition._waiters:
                    condition._waiters.remove(waiter)

        def sleep(seconds: float) -> None:
            (real_sleep if self.here is None else self.pause)(seconds)

        def monotonic() -> float:
            return real_time() if self.here is None else self.seconds

        return [
            (threading.Condition, "wait", wait),
            (time, "sleep", sleep),
            (time, "monotonic", monotonic),
            (threading, "_time", monotonic),
            (queue, "time", monotonic),
        ]

    def _of_processes(self) -> list[tuple[Any, str, Any]]:
        """Which machine this is, who runs on it, and how others ended."""

        def host() -> str:
            return self.here.machine.name if self.here else "world"

        def current() -> Process:
            return self.here.process if self.here else Process("world", 1, "1")

        def started(pid: int) -> str | None:
            here = (one for one in self.programs if (one.pid, one.machine.name) == (pid, host()))
            found = next(here, None)
            return None if found is None or found.dead else str(pid)

        def is_running(process: Process) -> bool:
            return self.one_machine and any(
                one.process == process and not one.dead and one.stalled_until <= self.seconds
                for one in self.programs
            )

        def end_in_order() -> None:
            if self.here:
                self.here.ended_in_order = True

        def ended_in_order(process: Process) -> bool:
            return any(one.process == process and one.ended_in_order for one in self.programs)

        return [
            (machine.processes, "this_host", host),
            (machine.processes, "_scope", lambda: host().ljust(6, "0").encode().hex()[:12]),
            (machine.processes, "started", started),
            (Process, "current", staticmethod(current)),
            (Process, "is_running", is_running),
            (state.leases, "this_host", host),
            (state.leases, "ended_in_order", ended_in_order),
            (state.leases, "forget", lambda _process: None),
            (flows.slot.slots, "end_in_order", end_in_order),
        ]
