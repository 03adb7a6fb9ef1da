"""The loop of a worker slot: lease a model, work on it, release it, take the next.

There are more threads than slots. A thread needs a slot to build and none to wait for the feed, so
every slot is busy building while other threads wait for their last packages to be published.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from flows.slot.bench_run import BenchRun
from flows.slot.context import Slot, SweepContext
from flows.slot.model_run import ModelRun
from matrix.needs import is_measuring
from state.records import Lease

Kind = Callable[[Collection[str]], type[ModelRun] | type[BenchRun]]
"""From what leased work needs to how it is done."""
THREADS_PER_SLOT = 2
_IDLE = 1.0
"""Seconds between two attempts to lease while other processes hold all open models."""


def usual(needs: Collection[str]) -> type[ModelRun | BenchRun]:
    """How a sweep works."""
    return BenchRun if is_measuring(needs) else ModelRun


def run_slots(sweep: SweepContext, slots: Sequence[Slot], kind: Kind = usual) -> None:
    """Build models until none is left, leasing ends here, or everything stops.

    Raises any error that a thread could not handle.
    """
    for slot in slots:
        sweep.give_back(slot)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            _lease_and_work(sweep, kind)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(error)
            sweep.stop.ask()

    names = (f"slot-{number}" for number in range(THREADS_PER_SLOT * len(slots)))
    threads = [threading.Thread(target=work, name=name) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _lease_and_work(sweep: SweepContext, kind: Kind) -> None:
    while not sweep.is_ending():
        slot = sweep.take_slot()
        if slot is None:
            continue
        lease = None
        try:
            if not sweep.is_ending():  # a stop may have come while this thread waited for the slot
                lease = sweep.state.lease(
                    sweep.sweep_id, slot.owner, sweep.leases.ttl, sweep.among, sweep.offers
                )
        finally:
            if lease is None:
                sweep.give_back(slot)
        if lease is not None:
            _work(sweep, slot, lease, kind)
        elif sweep.is_ending() or not sweep.has_open_work():
            return
        else:
            sweep.wait_for_release(_IDLE)


def _work(sweep: SweepContext, slot: Slot, lease: Lease, kind: Kind) -> None:
    with sweep.leases.renewing(lease) as renewed:
        run, done = kind(lease.needs)(sweep, renewed, slot), False
        try:
            done = run.run()
        finally:
            run.give_back_slot()
            # A lost lease is not ours to release; the state knows and refuses.
            sweep.state.release(lease, done=done)
            sweep.released()
