"""The loop of a worker slot: lease a model, work on it, release it, take the next.

There are more threads than slots. A thread needs a slot to build and none to wait for the feed, so
every slot is busy building while other threads wait for their last packages to be published.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from flows.features import feature
from flows.slot.context import LeasedRun, Slot, SweepContext
from flows.slot.model_run import ModelRun
from machine.processes import end_in_order
from matrix.needs import is_measuring
from state.errors import StateUnavailable
from state.records import Lease

Kind = Callable[[Collection[str]], type[LeasedRun]]
"""From what leased work needs to how it is done."""
THREADS_PER_SLOT = 2
_IDLE = 1.0
"""Seconds between two attempts to lease while other processes hold all open models."""


def usual(needs: Collection[str]) -> type[LeasedRun]:
    """How a sweep works."""
    kind: type[LeasedRun] = feature("benchmarks") if is_measuring(needs) else ModelRun
    return kind


def run_slots(context: SweepContext, slots: Sequence[Slot], kind: Kind = usual) -> None:
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


def _lease_and_work(context: SweepContext, kind: Kind) -> None:
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
def _held(context: SweepContext, slot: Slot, lease: Lease, kind: Kind) -> Iterator[LeasedRun]:
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
