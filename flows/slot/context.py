"""What the slots of one sweep share: the plan, the rooms, and the benches they work at."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from feed.interface import Published
from feed.publisher import Publisher
from flows.slot.hub_outage import Outage
from flows.slot.leases import LeaseKeeper
from flows.sweep.stop import Stop
from matrix.model import Plan, PlannedModel
from matrix.status import Status
from state.ledger import State
from state.records import Owner
from workers.attest.attester import Attester
from workers.build.builder import Builder, Built
from workers.verify.verifier import Verifier


@dataclass(slots=True, eq=False)
class Bench:
    """A worker slot: a builder with its warm engine host, who checks and vouches, its name."""

    owner: Owner
    builder: Builder
    verifier: Verifier
    attester: Attester

    def close(self) -> None:
        """End the host processes and remove what was not published."""
        self.verifier.close()
        self.builder.close()


@dataclass(frozen=True, slots=True)
class Parcel:
    """A built package on its way to the feed."""

    cell: str
    package: str
    version: str
    built: Built
    timeout: float
    again: bool
    """Built a second time, because the first one's bytes had gone bad."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say about how cells are treated."""

    if_changed: bool = False
    keep_local: Path | None = None
    tries: int = 4
    publish_unverified: bool = False
    disk_budget: int = 0


@dataclass(slots=True)
class Shop:
    """Shared by all slots of a sweep in this process."""

    plan: Plan
    sweep_id: int
    state: State
    keeper: LeaseKeeper
    stop: Stop
    rules: Rules
    logs: Path
    kept: Path
    """Where packages go that are not published and not to be lost: conflicts."""
    lane: ThreadPoolExecutor
    outage: Outage = field(init=False)
    publisher: Publisher | None = None
    """None: this sweep does not publish."""
    newest: Mapping[str, Published] = field(default_factory=dict)
    """For each cell its newest version of any stamp; only filled with `--if-changed`."""
    among: frozenset[str] | None = None
    """The models to lease, where the sweep has more than this run selected."""
    benches: queue.Queue[Bench] = field(default_factory=queue.Queue)
    closing: threading.Event = field(default_factory=threading.Event)
    """Set: no further model is leased here; those at hand are finished."""
    models: Mapping[str, PlannedModel] = field(init=False)
    _runs: Counter[str] = field(default_factory=Counter)
    _release: threading.Condition = field(default_factory=threading.Condition)
    _releases: int = 0

    def __post_init__(self) -> None:
        self.outage = Outage(self.state, self.sweep_id, self.plan.stamp)
        self.models = {model.name: model for model in self.plan.models}

    def is_open(self, status: Status) -> bool:
        """Whether there is something to do for a cell of this status."""
        if status is Status.VERIFIED:
            return self.publisher is not None
        return status.open

    def count_run(self, model: str) -> int:
        """Note a run that left a model unfinished; how many that makes."""
        with self._release:
            self._runs[model] += 1
            return self._runs[model]

    def released(self) -> None:
        """A model was given back: loops that found nothing look again."""
        with self._release:
            self._releases += 1
            self._release.notify_all()

    def wait_for_release(self, seconds: float) -> None:
        """Until a model is given back here, or so long, or a stop."""
        with self._release:
            before = self._releases
            deadline = time.monotonic() + seconds
            while self._releases == before and not self.stop and time.monotonic() < deadline:
                self._release.wait(0.2)
