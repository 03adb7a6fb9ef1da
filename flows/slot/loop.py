"""The loop of a worker slot: lease a model, work on it, release it, take the next.

There are more loops than benches. A loop needs a bench to build and none to wait for the feed,
so every bench is busy building while other loops see their last packages out.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Sequence

from flows.slot.context import Bench, Shop
from flows.slot.leases import Held
from flows.slot.model_run import ModelResult, ModelRun, Turn
from matrix.model import PlannedModel
from state.records import Lease

RunModel = Callable[[PlannedModel, int, Callable[[], ModelResult]], None]
"""Called with a model, the attempt and the work; runs the work (and may show it)."""

_log = logging.getLogger(__name__)

LOOPS_PER_BENCH = 2
_IDLE = 1.0
"""Seconds between two looks for work while other processes hold all that is left."""


def run_plainly(_model: PlannedModel, _attempt: int, work: Callable[[], ModelResult]) -> None:
    """A `RunModel` that shows nothing."""
    work()


def run_slots(shop: Shop, benches: Sequence[Bench], run_model: RunModel) -> None:
    """Work until nothing is left, the shop closes or everything stops.

    Raises what a loop could not handle.
    """
    for bench in benches:
        shop.benches.put(bench)
    failures: list[BaseException] = []

    def loop() -> None:
        try:
            _loop(shop, run_model)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(error)
            shop.stop.ask()

    threads = [
        # The context carries Prefect's flow run to the task runs of this thread.
        threading.Thread(target=contextvars.copy_context().run, args=(loop,), name=f"loop-{number}")
        for number in range(LOOPS_PER_BENCH * len(benches))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _loop(shop: Shop, run_model: RunModel) -> None:
    while not shop.stop and not shop.closing.is_set():
        bench = _take(shop)
        if bench is None:
            continue
        turn = Turn(shop, bench)
        try:
            if shop.stop or shop.closing.is_set():
                return  # it came while this loop waited for the bench
            lease = shop.state.lease(shop.sweep_id, bench.owner, shop.keeper.ttl, shop.among)
            if lease is not None:
                _work(shop, run_model, turn, lease)
        finally:
            turn.end()
        if lease is None:
            if not shop.state.remaining(shop.sweep_id, shop.among).open:
                return
            shop.wait_for_release(_IDLE)


def _take(shop: Shop) -> Bench | None:
    try:
        return shop.benches.get(timeout=0.2)
    except queue.Empty:
        return None


def _work(shop: Shop, run_model: RunModel, turn: Turn, lease: Lease) -> None:
    with shop.keeper.keep(lease) as held:
        done = False
        try:
            done = _show(shop, run_model, turn, held).done
        finally:
            # A lost lease is not ours to release; the state knows and says no.
            shop.state.release(lease, done=done)
            shop.released()


def _show(shop: Shop, run_model: RunModel, turn: Turn, held: Held) -> ModelResult:
    """Run the model, shown or not. What shows it may lose an error, fail, or not even begin."""
    results: list[ModelResult] = []
    raised: list[BaseException] = []

    def work() -> ModelResult:
        try:
            results.append(ModelRun(shop, held, model, turn).run())
        except BaseException as error:
            raised.append(error)
            raise
        return results[0]

    model = shop.models[held.lease.model]
    try:
        run_model(model, held.lease.attempt, work)
    except Exception as error:  # noqa: BLE001 - a picture of the work is not worth the work
        if not (results or raised):
            _log.warning("%s is built without being shown: %s", model.name, error)
    if raised:
        raise raised[0]
    return results[0] if results else work()
