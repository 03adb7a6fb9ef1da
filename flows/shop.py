"""What the slots of one sweep share: the plan, the rooms, and the benches they work at."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from feed.interface import Published
from feed.publisher import Publisher
from flows.leasing import LeaseKeeper
from flows.stop import Stop
from matrix.model import Plan, PlannedModel
from state.ledger import State
from state.records import Owner
from workers.builder import Builder


@dataclass(slots=True, eq=False)
class Bench:
    """A worker slot: a builder with its warm engine host, and the name it goes by."""

    owner: Owner
    builder: Builder


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say about how cells are treated."""

    publish: bool = True
    if_changed: bool = False
    keep_local: Path | None = None
    tries: int = 4


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
    benches: queue.Queue[Bench]
    lane: ThreadPoolExecutor
    publisher: Publisher | None = None
    newest: Mapping[str, Published] = field(default_factory=dict)
    """For each cell its newest version of other stamps; only filled with `--if-changed`."""
    models: Mapping[str, PlannedModel] = field(init=False)

    def __post_init__(self) -> None:
        self.models = {model.name: model for model in self.plan.models}
