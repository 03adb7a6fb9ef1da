"""A sweep on this machine: slots are threads of this process, each with its own engine host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from flows.cli.activity import waiting_for
from flows.cli.settings import Settings
from flows.observe.estimates import estimate
from flows.packages.published import fetch_portable
from flows.packages.signing import signer_of
from flows.slot.cell_work import kept_bytes
from flows.slot.context import Slot, SweepContext
from flows.slot.leases import LeaseRenewer
from flows.sweep.engines import engine_spec, runtimes_of, slot_count
from flows.sweep.lifecycle import Sweep
from flows.sweep.workspace import Workspace
from machine.ledger import Ledger
from machine.processes import this_host
from matrix.model import Plan
from matrix.needs import Words
from state.records import Kind, Owner
from workers.attest.attester import Attester
from workers.build.budgets import DiskBudget, MemoryBudget
from workers.build.builder import Builder, BuildOptions
from workers.build.origin import Fetch
from workers.build.stage_runner import Exchange, Expectation
from workers.compile.stage import CompileStage
from workers.host.client import EngineHost
from workers.host.watch import HostLimits
from workers.runtimes.pool import Runtimes
from workers.store import GcReport, Store
from workers.verify.verifier import Verifier

if TYPE_CHECKING:
    from state.state import State


def owners_here() -> str:
    """The prefix of the owner names of this process's slots."""
    return f"{this_host().partition('/')[0]}/{os.getpid()}/"


@contextmanager
def open_slots(
    sweep: Sweep,
    slots_here: int | None = None,
    offers: Words | None = None,
    exchange: Callable[[Store], Exchange] | None = None,
) -> Iterator[tuple[SweepContext, list[Slot]]]:
    """Open the store, the leases and the slots; close them in reverse whatever happens.

    `slots_here`: how many of the machine's slots are in this process; None: all of them.
    `offers`: the words that cells may need; None: any. `exchange`: where machines leave the results
    of stages for each other.
    """
    plan, state, settings = sweep.plan, sweep.state, sweep.settings
    work = Workspace(settings)
    here = slots_here or slot_count(settings)
    with ExitStack() as opened:
        store = opened.enter_context(closing(Store(work.store)))
        leases = opened.enter_context(LeaseRenewer(state, sweep.stop, 2 * settings.heartbeat))
        pool = opened.enter_context(ThreadPoolExecutor(2 * here, thread_name_prefix="publish"))
        ledger = Ledger()
        kept = partial(kept_bytes, work.kept)
        note = partial(_note_evictions, state, sweep.info.id)
        limit = settings.disk_budget or 0
        budget = DiskBudget(
            store, limit, ledger=ledger, keep_free=settings.keep_free, beside=kept, evicted=note
        )
        context = SweepContext(
            sweep,
            leases,
            pool,
            ledger,
            offers=offers,
        )
        memory = MemoryBudget(settings.memory_budget or 0, ledger=ledger)
        expected = estimate(plan, state)
        made = []
        for number in range(1, here + 1):
            owner = Owner.here(f"{owners_here()}slot-{number}")
            mine = exchange(store) if exchange else None
            builder, runtimes = _builder(
                plan, settings, store, expected, budget, memory, exchange=mine
            )
            attester = attester_of(settings, builder, runtimes)
            slot = Slot(owner, builder, Verifier(runtimes, settings.verify), attester)
            opened.callback(slot.close)
            made.append(slot)
        yield context, made


@contextmanager
def open_builder(plan: Plan, settings: Settings, fetch: Fetch | None = None) -> Iterator[Builder]:
    """A single builder, without slots and leases. `fetch`: where the packages come from that cells
    are compiled from; None: from the feed."""
    work = Workspace(settings)
    work.prepare()
    waiting_for(f"asking the engine {settings.engine}")
    with closing(Store(work.store)) as store:
        builder, runtimes = _builder(plan, settings, store, fetch=fetch)
        with closing(builder), closing(runtimes):
            yield builder


def attester_of(settings: Settings, builder: Builder, runtimes: Runtimes) -> Attester:
    """An attester of what a builder makes."""
    return Attester(
        builder.host,
        allow=settings.allow,
        builder=settings.builder_id or "",
        sign=signer_of(settings),
        runtimes=runtimes,
    )


@contextmanager
def verifying(settings: Settings) -> Iterator[Verifier]:
    """A verifier with runtimes of its own."""
    with closing(Verifier(runtimes_of(settings), settings.verify)) as verifier:
        yield verifier


def _builder(
    plan: Plan,
    settings: Settings,
    store: Store,
    expected: Expectation | None = None,
    budget: DiskBudget | None = None,
    memory: MemoryBudget | None = None,
    fetch: Fetch | None = None,
    exchange: Exchange | None = None,
) -> tuple[Builder, Runtimes]:
    """A builder in an engine host of its own, and the runtimes beside it."""
    work = Workspace(settings)
    limits = HostLimits(
        memory=settings.memory or 0,
        # Slots that each take all cores are slower than slots that share them.
        threads=max(1, (os.cpu_count() or 1) // slot_count(settings)),
    )
    runtimes = runtimes_of(settings, limits)
    builder = Builder(
        store,
        EngineHost(engine_spec(settings), limits=limits, log_dir=work.logs),
        work.home / "work",
        BuildOptions(
            stamp=plan.stamp,
            self_contained=plan.self_contained,
            expected=expected,
            **settings.allow,
        ),
        budget=budget,
        memory=memory,
        compiler=CompileStage(runtimes, settings.emulated, settings.cwd),
        fetch=fetch or partial(fetch_portable, settings),
        exchange=exchange,
    )
    return builder, runtimes


def _note_evictions(state: State, sweep_id: int, report: GcReport) -> None:
    """Record the eviction of unpublished bytes: a rebuild makes them again."""
    subjects = [one.subject for one in report.evicted]
    state.note(sweep_id, Kind.NOTICE, {"evicted": subjects[:100], "freed": report.freed})
