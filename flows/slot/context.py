"""What the slots of one sweep share in this process, and a slot itself. They share an outage of the
Hugging Face hub too: one cell detects it for all, and it is reported once."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.observe.progress import OUTAGE
from flows.settings.workspace import Workspace
from flows.slot.leases import LeaseRenewer, RenewedLease
from flows.sweep.lifecycle import Sweep
from machine.ledger import Ledger
from matrix.model import Cell, PlannedModel, SourceKind
from matrix.needs import Words
from matrix.status import FailureClass, Status
from state.records import Kind, Lease, Owner
from workers.attest.attester import Attester
from workers.build.builder import Builder
from workers.errors import BuildFailed
from workers.verify.verifier import Verifier

if TYPE_CHECKING:
    from state.state import State

LOOK_AGAIN = 0.2
"""Seconds between two checks for a stop while waiting."""
PAUSE = 300.0
"""Seconds without a request to the hub after one that failed."""


def concerns(cell: Cell, error: object) -> bool:
    """Whether an error means that the hub cannot be reached."""
    from_hub = cell.model.source.kind is SourceKind.HUB
    return from_hub and isinstance(error, BuildFailed) and error.failure is FailureClass.NETWORK


@dataclass(slots=True)
class HubOutage:
    """What the slots of a process know of the hub.

    The outage begins when a cell has failed all its tries. From then on, models in the local cache
    are built and all others fail at once, until one cell asks the hub again after a pause.
    """

    state: State
    sweep_id: int
    stamp: str
    """With the flags that a command about the sweep needs."""
    clock: Callable[[], float] = time.monotonic
    _since: float = 0.0
    _first: BuildFailed | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def suspected(self) -> bool:
        """Whether the last request to the hub failed."""
        return self._first is not None

    @property
    def known(self) -> bool:
        """Whether to build from the local cache alone."""
        return self.suspected and self.clock() - self._since < PAUSE

    def note(self, error: BuildFailed, *, asked: bool) -> BuildFailed:
        """Take in the failure of a cell; returns the failure to record, the same for every cell.

        `asked`: the cell sent a request to the hub.
        """
        with self._lock:
            first = self._first is None
            if self._first is None:
                self._first = self._told(error)
            if asked:
                self._since = self.clock()
        if first:
            text = f"{error.reason}; models that are not in the local cache fail until it is back"
            self.state.note(self.sweep_id, Kind.NOTICE, {OUTAGE: text})
        return self._told(self._first)

    def over(self) -> None:
        """Take in that the hub answered."""
        with self._lock:
            back, self._first = self._first is not None, None
        if back:
            self.state.note(self.sweep_id, Kind.NOTICE, {OUTAGE: ""})

    def _told(self, error: BuildFailed) -> BuildFailed:
        hint = f"when the hub is back: modelmill retry {self.stamp} --class NETWORK"
        return BuildFailed(error.failure, error.stage, error.reason, hint=hint)


@dataclass(slots=True, eq=False)
class Slot:
    """A worker slot: the name that leases are taken under, and the tools that build one cell."""

    owner: Owner
    builder: Builder
    verifier: Verifier
    attester: Attester

    def close(self) -> None:
        """End the host processes and remove what was not published."""
        self.verifier.close()
        self.builder.close()


@dataclass(slots=True)
class SweepContext:
    """Shared by all slots of a sweep in this process."""

    sweep: Sweep
    leases: LeaseRenewer
    publish_pool: ThreadPoolExecutor
    ledger: Ledger = field(default_factory=Ledger)
    hub: HubOutage = field(init=False)
    offers: Words | None = None
    """What this machine offers: cells that need more are not leased here; None: all are."""
    tuning: Mapping[str, Any] = field(default_factory=dict)
    """Of a sweep that tunes what it builds: what was asked for, as the sweep has recorded it."""
    closing: threading.Event = field(default_factory=threading.Event)
    """When set, no further model is leased here; leased ones are finished."""
    among: frozenset[str] | None = field(init=False)
    """The models to lease, where the sweep has more than this run selected."""
    folders: Workspace = field(init=False)
    models: Mapping[str, PlannedModel] = field(init=False)
    _free_slots: queue.Queue[Slot] = field(default_factory=queue.Queue)
    _runs: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)
    _release: threading.Condition = field(default_factory=threading.Condition)
    _releases: int = 0

    def __post_init__(self) -> None:
        sweep = self.sweep
        self.among = sweep.among()
        self.folders = Workspace(sweep.settings)
        self.hub = HubOutage(sweep.state, sweep.info.id, f"{sweep.plan.stamp}{sweep.flags}")
        self.models = {model.name: model for model in sweep.plan.models}

    def is_ending(self) -> bool:
        """Whether no further model is to be leased here."""
        return bool(self.sweep.stop) or self.closing.is_set()

    def is_open(self, status: Status) -> bool:
        """Whether there is something to do for a cell of this status."""
        return status.unfinished(publish=self.sweep.publisher is not None)

    def has_open_work(self) -> bool:
        """Whether there is work for this machine, now or when its holder dies."""
        sweep = self.sweep
        return sweep.state.remaining(sweep.info.id, self.among, self.offers).open > 0

    def lease(self, owner: Owner) -> Lease | None:
        """Lease a model whose cells can be done here; None: there is none now."""
        state, sweep = self.sweep.state, self.sweep.info.id
        return state.lease(sweep, owner, self.leases.ttl, self.among, self.offers)

    def log_of(self, cell: str) -> Path:
        """The file that receives everything about a cell."""
        return self.folders.log_of(self.sweep.plan.stamp, cell)

    def take_slot(self) -> Slot | None:
        """A free slot, or None after a moment without one."""
        try:
            return self._free_slots.get(timeout=LOOK_AGAIN)
        except queue.Empty:
            return None

    def give_back(self, slot: Slot) -> None:
        """Let another model use this slot."""
        self._free_slots.put(slot)

    def count_run(self, lease: Lease) -> int:
        """Note a run that left leased cells unfinished; returns how many there were."""
        with self._release:
            self._runs[lease.model, lease.needs] += 1
            return self._runs[lease.model, lease.needs]

    def released(self) -> None:
        """Wake the threads that found no model to lease: one was given back."""
        with self._release:
            self._releases += 1
            self._release.notify_all()

    def wait_for_release(self, seconds: float) -> None:
        """Wait until a model is given back here, the time is over, or everything stops."""
        with self._release:
            before = self._releases
            deadline = time.monotonic() + seconds
            while self._releases == before and not self.sweep.stop and time.monotonic() < deadline:
                self._release.wait(LOOK_AGAIN)


@dataclass(slots=True)
class LeasedRun(ABC):
    """The work on one model under one lease, in a slot that it holds meanwhile."""

    context: SweepContext
    lease: RenewedLease
    slot: Slot
    has_slot: bool = True
    done: bool = False
    """Whether nothing of it is left."""

    @abstractmethod
    def run(self) -> bool:
        """Do what is open; whether nothing is left."""

    @property
    def sweep(self) -> Sweep:
        """What the slots work on."""
        return self.context.sweep

    @property
    def name(self) -> str:
        """The leased model."""
        return self.lease.lease.model

    def give_back_slot(self) -> None:
        """Give the slot back, once."""
        if self.has_slot:
            self.has_slot = False
            self.context.give_back(self.slot)
