"""The budgets of disk and memory: a stage starts when what it is expected to take is free, in turn.

A stage that finds too little disk does not wait: its build would keep its inputs in the store,
where nothing in use can be evicted. It raises `NoSpaceNow`, the build gives its inputs up, waits
its turn for space for all of it, and begins again; the store has the outputs of its finished
stages. Before a build waits, what nobody uses is evicted; after that the one cell that does not fit
fails. What counts is what the store really holds plus what the running stages of all processes on
this machine have reserved.

An estimate of memory is no ceiling (that is the host's): a stage that is expected to need more than
there is runs alone. A stage that runs disturbs measurements, so it also waits until none is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from machine import disk, memory
from machine.disk import size_text
from machine.ledger import Ledger, Place, Reservation
from machine.reservations import DISTURBS, Want, reserved
from machine.waits import WITHOUT_LIMIT, Wait, WaitedTooLong, WaitRules
from matrix.status import FailureClass
from workers.errors import BuildFailed, wait_failures
from workers.store import GcReport, Store

MOST_FREE = 256 * 1024 * 1024
LOW_WATER = 0.9
"""Eviction goes a little further than it must, so that not every cell has to evict."""


@dataclass(eq=False)
class DiskBudget:
    """How much the store may hold, for all that use it on this machine."""

    store: Store
    total: int = 0
    """Bytes; 0: whatever the volume has."""
    _: KW_ONLY
    ledger: Ledger = field(default_factory=Ledger)
    keep_free: int | None = None
    """Bytes of the volume that stay free; None: a twentieth of it, at most `MOST_FREE`."""
    beside: Callable[[], int] = lambda: 0
    """What else takes of the budget: kept packages."""
    free: Callable[[Path], int] = disk.free
    evicted: Callable[[GcReport], None] = lambda _report: None

    def __post_init__(self) -> None:
        self._resource = f"disk {self.store.root.resolve().as_posix()}"

    @property
    def limit(self) -> int:
        """Bytes of the budget that are left to the store; 0: whatever the volume has."""
        return max(self.total - self.beside(), 1) if self.total else 0

    @property
    def _stays_free(self) -> int:
        if self.keep_free is not None:
            return self.keep_free
        return min(MOST_FREE, disk.size(self.store.root) // 20)

    @property
    def reserved(self) -> int:
        """Bytes that are set aside for running stages."""
        with self.ledger.everybody() as entries:
            return reserved(self._resource, entries)

    @property
    def waiting(self) -> int:
        """How many builds wait for room."""
        with self.ledger.everybody() as entries:
            tickets = [ticket for entry in entries for ticket in entry.waiting]
            return sum(self._resource in ticket.resources for ticket in tickets)

    def claim(self, size: int) -> Reservation | None:
        """Set `size` bytes aside if that can be done at once and nobody waits."""
        wants = self._wants(size)
        reservation = self.ledger.claim(wants)
        if reservation is None and not self.waiting and self._lacks(size) is None:
            reservation = self.ledger.claim(wants)
        return reservation

    @contextmanager
    def reserve(
        self, size: int, rules: WaitRules = WITHOUT_LIMIT, *, whole: int = 0
    ) -> Iterator[int]:
        """Set `size` bytes aside, or up to `whole` where there can be as many.

        Waits for its turn and for room, and tells of it; call it with nothing of the store in use.
        Raises `BuildFailed` (DISK) when no other build is left to wait for, or when none has begun
        or ended anything for too long.
        """
        most = max(size, min(whole, self.limit) if self.limit else whole)
        with self.ledger.queue(self._wants(size)) as place:
            amount, reservation = self._wait(place, size, most, Wait(rules))
        try:
            yield amount
        finally:
            reservation.release()

    def _wait(self, place: Place, size: int, most: int, wait: Wait) -> tuple[int, Reservation]:
        while True:
            # Whoever is still at work is seen before what is free: it may end in between.
            others = self._others()
            reservation = self._claim_in(place, most)
            if reservation is not None:
                return most, reservation
            if place.first and not others:
                reservation = self._claim_in(place, size)
                if reservation is not None:
                    return size, reservation
                if not self._others() and (reason := self._lacks(size)) is not None:
                    raise self._full(size, reason)
            try:
                place.pause(wait, self.store.oldest_use())
            except WaitedTooLong as error:
                reason = (
                    self._lacks(size) or f"needs {size_text(size)} and waits behind another build"
                )
                text = f"{reason}; those that have it do not go on"
                raise self._full(size, text) from error

    def _claim_in(self, place: Place, size: int) -> Reservation | None:
        reservation = place.claim(self._wants(size))
        if reservation is None and place.first and self._lacks(size) is None:
            reservation = place.claim(self._wants(size))
        return reservation

    def _others(self) -> bool:
        """Whether anybody is at work with the store, and may leave room when it ends."""
        return self.reserved > 0 or self.store.used()

    def _full(self, size: int, reason: str) -> BuildFailed:
        steps = "free some space, lower --keep-free, or choose another volume with --store"
        if self.limit:
            steps = "raise --disk-budget, free some space, or use fewer --jobs"
        failure = BuildFailed(FailureClass.DISK, "reserve", reason, hint=steps)
        if 0 < self.limit < size:
            failure.retryable = False  # it will never fit, however long one waits
        return failure

    def _wants(self, size: int) -> list[Want]:
        def room() -> int:
            free = self.free(self.store.root) - self._stays_free
            return min(free, self.limit - self.store.size()) if self.limit else free

        return [Want(self._resource, size, room, f"{size_text(size)} of disk space")]

    def _lacks(self, size: int) -> str | None:
        """Why `size` bytes more do not fit, after having made room where possible."""
        taken = self.reserved
        if self.limit:
            room = self.limit - taken - size
            held = self.store.size()
            if held > room:
                held = self._evict(int(max(room, 0) * LOW_WATER)).kept
            if held > max(room, 0) or room < 0:
                return (
                    f"needs {size_text(size)}, but of the disk budget of {size_text(self.limit)} "
                    f"{size_text(held)} are in use and {size_text(taken)} reserved"
                )
        wanted = size + taken + self._stays_free
        if self.free(self.store.root) < wanted:
            lacking = wanted - self.free(self.store.root)
            self._evict(max(self.store.size() - lacking, 0))
            left = self.free(self.store.root)
            if left < wanted:
                there = f"the volume of the store has {size_text(left)} free"
                stay = f"{size_text(self._stays_free)} of it stay free"
                return f"needs {size_text(size)}, but {there}, and {stay} (--keep-free)"
        return None

    def _evict(self, budget: int) -> GcReport:
        report = self.store.gc(budget)
        if report.evicted:
            self.evicted(report)
        return report


class NoSpaceNow(Exception):
    """A stage needs more bytes than are free now."""

    def __init__(self, size: int, whole: int) -> None:
        super().__init__(f"no room for {size} bytes at once")
        self.size = size
        self.whole = whole


class BuildSpace:
    """The space that a build may fill; all of the disk without a budget."""

    def __init__(self, budget: DiskBudget | None, rules: WaitRules) -> None:
        self._budget = budget
        self._rules = rules
        self._waited = ExitStack()
        self._given = 0

    @contextmanager
    def reserve(self, size: int, whole: int = 0) -> Iterator[None]:
        """Hold `size` bytes while a stage runs; raises `NoSpaceNow` if they are not free now.

        `whole`: what the build as a whole may need.
        """
        if self._budget is None or size <= self._given:
            yield
            return
        reservation = self._budget.claim(size)
        if reservation is None:
            raise NoSpaceNow(size, whole)
        with reservation:
            yield

    def wait(self, lacking: NoSpaceNow) -> None:
        """Wait for space and hold it until the build ends. Raises `BuildFailed` or `Cancelled`."""
        assert self._budget is not None, "without a budget there is nothing to wait for"
        self._waited.close()
        self._given = 0
        waited = self._budget.reserve(lacking.size, self._rules, whole=lacking.whole)
        self._given = self._waited.enter_context(waited)

    def close(self) -> None:
        """Give the space back."""
        self._waited.close()


SHARE = 0.9
"""Of the machine's memory; the rest is for the system and for our own processes."""
RESOURCE = "memory"


class MemoryBudget:
    """How much the stages that run at once on this machine may take."""

    def __init__(self, limit: int = 0, *, ledger: Ledger | None = None) -> None:
        self.limit = limit or int(memory.total() * SHARE)
        self._ledger = ledger or Ledger()

    @property
    def reserved(self) -> int:
        """Bytes that running stages are expected to take."""
        with self._ledger.everybody() as entries:
            return reserved(RESOURCE, entries)

    @contextmanager
    def reserve(
        self, size: int, rules: WaitRules = WITHOUT_LIMIT, *, what: str = ""
    ) -> Iterator[None]:
        """Wait for `size` bytes, and hold them for as long as a stage runs.

        Raises `Cancelled`, or `BuildFailed` when none of those who hold memory has begun or ended
        anything for too long.
        """
        words = f"{size_text(size)} of memory"
        wants = [Want(RESOURCE, size, self.limit, words, alone=True), DISTURBS]
        with wait_failures("reserve"):
            reservation = self._ledger.reserve(wants, what, rules)
        with reservation:
            yield
