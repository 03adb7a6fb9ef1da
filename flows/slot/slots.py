"""A sweep on this machine: slots are threads of this process, each with its own engine host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from flows.observe.progress import CACHE
from flows.packages.builder import attester_of, builder_of
from flows.packages.cache import open_cache
from flows.plan.estimates import estimate
from flows.settings.engines import slot_count
from flows.settings.workspace import Workspace
from flows.slot.cell_work import kept_bytes
from flows.slot.context import Slot, SweepContext
from flows.slot.leases import LeaseRenewer
from flows.sweep.lifecycle import Sweep
from machine.ledger import Ledger
from machine.processes import this_host
from matrix.needs import Words
from state.records import Kind, Owner
from workers.build.budgets import DiskBudget, MemoryBudget
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
) -> Iterator[tuple[SweepContext, list[Slot]]]:
    """Open the store, the leases and the slots; close them in reverse whatever happens.

    `slots_here`: how many of the machine's slots are in this process; None: all of them.
    `offers`: the words that cells may need; None: any.
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
        cache = open_cache(settings, store, partial(_note_cache, state, sweep.info.id))
        made = []
        for number in range(1, here + 1):
            owner = Owner.here(f"{owners_here()}slot-{number}")
            builder, runtimes = builder_of(
                plan, settings, store, expected, budget, memory, cache=cache
            )
            attester = attester_of(settings, builder, runtimes)
            slot = Slot(owner, builder, Verifier(runtimes, settings.verify), attester)
            opened.callback(slot.close)
            made.append(slot)
        yield context, made


def _note_cache(state: State, sweep_id: int, news: str) -> None:
    """Show the news of the cache to all who watch; empty: there are none any more."""
    state.note(sweep_id, Kind.NOTICE, {CACHE: news})


def _note_evictions(state: State, sweep_id: int, report: GcReport) -> None:
    """Record the eviction of unpublished bytes: a rebuild makes them again."""
    subjects = [one.subject for one in report.evicted]
    state.note(sweep_id, Kind.NOTICE, {"evicted": subjects[:100], "freed": report.freed})
