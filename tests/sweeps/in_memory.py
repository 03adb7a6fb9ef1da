"""A whole sweep without a child process: real state, store and loop, feed in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from feed.interface import Feed
from feed.publisher import Publisher
from flows.observe.summary import Summary
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from flows.slot.context import Slot, SweepContext
from flows.slot.leases import LeaseRenewer
from flows.slot.slots import RunKind, run_slots, usual
from flows.stop import Stop
from flows.sweep.lifecycle import Sweep
from matrix.model import Plan, PlannedModel
from matrix.needs import Words
from matrix.status import Status
from matrix.verification import Rung
from state.records import Outcome, Owner
from state.state import State, open_state
from tests.fakes.feed import MemoryFeed
from tests.fakes.in_process import InProcessHost
from tests.plans.cells import plan_model
from workers.attest.attester import Attester
from workers.build.builder import Builder, BuildOptions, Built
from workers.store import Store
from workers.verify.verifier import VerifyFailed

TEMPLATE = "modelmill-{model}"


class TrustingVerifier:
    """A verifier that believes everything but what it is told not to."""

    def __init__(self) -> None:
        self.doubts: set[str] = set()

    def verify(self, built: Built, *_how: object) -> Built:
        if built.cell_id in self.doubts:
            raise VerifyFailed(built, [Rung("loads", False, "does not load")])
        return built

    def close(self) -> None:
        """Nothing to end."""


def make_plan(*models: PlannedModel, stamp: str = "20260609") -> Plan:
    def dated(text: str) -> str:
        return text.replace("20260609", stamp)

    moved = tuple(
        replace(
            model,
            cells=tuple(replace(cell, version=dated(cell.version)) for cell in model.cells),
            export_version=dated(model.export_version),
        )
        for model in models
    )
    return Plan(stamp, moved, "modelmill-index", f"0.0.0-{stamp}", "fake")


def small_model(name: str = "tiny/model", cells: int = 3, **config: Any) -> PlannedModel:
    model = plan_model(name, **{"salt": name, **config})
    return replace(model, cells=model.cells[-cells:])


@dataclass
class SweepHarness:
    """What tests turn and look at."""

    root: Path
    feed: Feed = field(default_factory=MemoryFeed)
    verifier: TrustingVerifier = field(default_factory=TrustingVerifier)
    stop: Stop = field(default_factory=Stop)
    hosts: list[InProcessHost] = field(default_factory=list)
    begun: Sweep | None = None

    def __post_init__(self) -> None:
        self.state: State = open_state(self.root / "state.db")
        self.store = Store(self.root / "store")

    def close(self) -> None:
        self.store.close()
        self.state.close()

    def settings(self, **flags: Any) -> Settings:
        return resolve({"home": str(self.root), "tries": 2, **flags}, {}, self.root)

    def sweep(
        self,
        plan: Plan,
        *,
        slots: int = 1,
        recorded: Mapping[str, Any] | None = None,
        offers: Words | None = None,
        kind: RunKind = usual,
        again: Collection[str] | None = None,
        in_hints: str = "",
        **flags: Any,
    ) -> Summary:
        """Begin, run and finish; as `flows.run.run` without console, signals, Prefect."""
        settings = self.settings(**flags)
        sweep = Sweep(plan, settings, self.state, self.feed, self.stop, recorded or {}, again)
        sweep.flags = in_hints
        sweep.begin()
        self.begun = sweep
        if sweep.publisher is not None:
            never = lambda event, _seconds: event.is_set()  # noqa: E731
            sweep.publisher = Publisher(self.feed, tries=3, sleep=never)
        with self._context(sweep) as context:
            context.offers = offers
            run_slots(context, self._slots(slots, plan), kind)
        return sweep.finish()[0]

    @contextmanager
    def _context(self, sweep: Sweep) -> Iterator[SweepContext]:
        with (
            LeaseRenewer(self.state, self.stop, 60.0) as leases,
            ThreadPoolExecutor(2) as pool,
        ):
            yield SweepContext(sweep, leases, pool)

    def _slots(self, number_of_slots: int, plan: Plan) -> list[Slot]:
        slots = []
        for number in range(number_of_slots):
            host = InProcessHost(self.root / "logs")
            self.hosts.append(host)
            options = BuildOptions(stamp=plan.stamp, self_contained=plan.self_contained)
            builder = Builder(self.store, host, self.root / "work", options)
            slots.append(
                Slot(Owner.here(f"slot-{number}"), builder, self.verifier, Attester(host))  # type: ignore[arg-type]
            )
        return slots

    def outcomes(self) -> dict[str, Outcome]:
        assert self.begun is not None
        return {one.cell: one for one in self.state.outcomes(self.begun.info.id)}

    def statuses(self) -> dict[str, Status]:
        return {cell: one.status for cell, one in self.outcomes().items()}

    def left_over(self) -> list[Path]:
        """Models in working folders, which belong to nobody after a sweep."""
        return list((self.root / "work").rglob("*.onnx"))

    def versions(self, packages: Sequence[str] = ()) -> dict[tuple[str, str], str | None]:
        """Everything in the feed with its tree."""
        return {
            (one.package, one.version): one.tree
            for package in (packages or list(self.feed.packages()))
            for one in self.feed.versions(package)
        }

    @property
    def ran(self) -> list[str]:
        """Stages that really ran, over all hosts so far."""
        return [stage for host in self.hosts for stage in host.ran]
