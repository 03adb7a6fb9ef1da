"""The slots of this process, each with its own engine host, and their loop: lease a model, work on
it, release it, take the next.

There are more threads than slots. A thread needs a slot to build and none to wait for the feed, so
every slot is busy building while other threads wait for their last packages to be published.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from flows.features import feature
from flows.observe.progress import CACHE
from flows.packages.builder import attester_of, builder_of, open_cache
from flows.plan.estimates import estimate
from flows.settings.engines import slot_count
from flows.settings.workspace import Workspace
from flows.slot.cell_work import kept_bytes
from flows.slot.context import LeasedRun, Slot, SweepContext
from flows.slot.leases import LeaseRenewer
from flows.slot.model_run import ModelRun
from flows.sweep.lifecycle import Sweep
from machine.ledger import Ledger
from machine.processes import end_in_order, this_host
from matrix.needs import Words, is_measuring
from state.errors import StateUnavailable
from state.records import Kind, Lease, Owner
from workers.build.budgets import DiskBudget, MemoryBudget
from workers.store import GcReport, Store
from workers.verify.verifier import Verifier

RunKind = Callable[[Collection[str]], type[LeasedRun]]
"""From what leased work needs to how it is done."""
THREADS_PER_SLOT = 2
_IDLE = 1.0
"""Seconds between two attempts to lease while other processes hold all open models."""


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

        def note(told: Mapping[str, Any]) -> None:
            state.note(sweep.info.id, Kind.NOTICE, told)

        def evicted(report: GcReport) -> None:
            """Record the eviction of unpublished bytes: a rebuild makes them again."""
            subjects = [one.subject for one in report.evicted]
            note({"evicted": subjects[:100], "freed": report.freed})

        budget = DiskBudget(
            store,
            settings.disk_budget or 0,
            ledger=ledger,
            keep_free=settings.keep_free,
            beside=partial(kept_bytes, work.kept),
            evicted=evicted,
        )
        context = SweepContext(sweep, leases, pool, ledger, offers=offers)
        memory = MemoryBudget(settings.memory_budget or 0, ledger=ledger)
        expected = estimate(plan, state)
        cache = open_cache(settings, store, lambda news: note({CACHE: news}))
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


def usual(needs: Collection[str]) -> type[LeasedRun]:
    """How a sweep works."""
    kind: type[LeasedRun] = feature("benchmarks") if is_measuring(needs) else ModelRun
    return kind


def run_slots(context: SweepContext, slots: Sequence[Slot], kind: RunKind = usual) -> None:
    """Build models until none is left, leasing ends here, or everything stops.

    Raises any error that a thread could not handle.
    """
    for slot in slots:
        context.give_back(slot)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            _lease_and_work(context, kind)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(error)
            context.sweep.stop.ask()

    names = (f"slot-{number}" for number in range(THREADS_PER_SLOT * len(slots)))
    threads = [threading.Thread(target=work, name=name) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _lease_and_work(context: SweepContext, kind: RunKind) -> None:
    while not context.is_ending():
        slot = context.take_slot()
        if slot is None:
            continue
        lease = None
        try:
            # A stop may have come while this thread waited for the slot.
            lease = None if context.is_ending() else context.lease(slot.owner)
        finally:
            if lease is None:
                context.give_back(slot)
        if lease is not None:
            with _held(context, slot, lease, kind) as run:
                run.done = run.run()
        elif context.is_ending() or not context.has_open_work():
            return
        else:
            context.wait_for_release(_IDLE)


@contextmanager
def _held(context: SweepContext, slot: Slot, lease: Lease, kind: RunKind) -> Iterator[LeasedRun]:
    """Renew a lease while its work is done, then give it back."""
    with context.leases.renewing(lease) as renewed:
        run = kind(lease.needs)(context, renewed, slot)
        try:
            yield run
        finally:
            run.give_back_slot()
            # A lost lease is not ours to release; the state knows and refuses.
            try:
                context.sweep.state.release(lease, done=run.done)
            except StateUnavailable:
                end_in_order()  # the lease stays behind, and the model is not to blame
                raise
            context.released()
