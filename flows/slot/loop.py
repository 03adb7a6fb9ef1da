"""The loop of a worker slot: lease a model, work on it, release it, take the next.

There are more threads than slots. A thread needs a slot to build and none to wait for the feed, so
every slot is busy building while other threads wait for their last packages to be published.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Sequence

from flows.slot.bench_run import BenchRun
from flows.slot.context import Slot, SweepContext
from flows.slot.model_run import ModelResult, ModelRun
from matrix.model import PlannedModel
from matrix.needs import is_measuring
from state.records import Lease

RunModel = Callable[[PlannedModel, int, Callable[[], ModelResult], Callable[[], str]], None]
"""Called with a model, the attempt, the work and a function that tells its activity."""

_log = logging.getLogger(__name__)

THREADS_PER_SLOT = 2
_IDLE = 1.0
"""Seconds between two attempts to lease while other processes hold all open models."""


def run_slots(
    sweep: SweepContext, slots: Sequence[Slot], run_model: RunModel | None = None
) -> None:
    """Build models until none is left, leasing ends here, or everything stops.

    Raises any error that a thread could not handle.
    """
    for slot in slots:
        sweep.give_back(slot)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            _lease_and_work(sweep, run_model)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(error)
            sweep.stop.ask()

    threads = [
        # The context carries Prefect's flow run to the task runs of this thread.
        threading.Thread(target=contextvars.copy_context().run, args=(work,), name=f"slot-{number}")
        for number in range(THREADS_PER_SLOT * len(slots))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _lease_and_work(sweep: SweepContext, run_model: RunModel | None) -> None:
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
            _work(sweep, slot, lease, run_model)
        elif sweep.is_ending() or not sweep.has_open_work():
            return
        else:
            sweep.wait_for_release(_IDLE)


def _work(sweep: SweepContext, slot: Slot, lease: Lease, run_model: RunModel | None) -> None:
    with sweep.leases.renewing(lease) as renewed:
        kind: type[ModelRun | BenchRun] = BenchRun if is_measuring(lease.needs) else ModelRun
        run, done = kind(sweep, renewed, slot), False
        try:
            result = run.run() if run_model is None else _run_shown(run, run_model)
            done = result.done
        finally:
            run.give_back_slot()
            # A lost lease is not ours to release; the state knows and refuses.
            sweep.state.release(lease, done=done)
            sweep.released()


def _run_shown(run: ModelRun | BenchRun, run_model: RunModel) -> ModelResult:
    """Let `run_model` show the run. It may lose an error, fail, or not even begin the work."""
    results: list[ModelResult] = []
    raised: list[BaseException] = []

    def work() -> ModelResult:
        try:
            results.append(run.run())
        except BaseException as error:
            raised.append(error)
            raise
        return results[0]

    try:
        run_model(run.sweep.models[run.name], run.lease.lease.attempt, work, run.activity)
    except Exception as error:  # noqa: BLE001 - a picture of the work is not worth the work
        if not (results or raised):
            _log.warning("%s is built without being shown: %s", run.name, error)
    if raised:
        raise raised[0]
    return results[0] if results else work()
