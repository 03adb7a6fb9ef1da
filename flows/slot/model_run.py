"""One leased model: build its open cells one after the other, publish each while the next builds.

The bench (with its warm engine host) is given back as soon as the last cell is built, so that
another model can be built while this one's last packages are still on their way to the feed.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from feed.publisher import Publisher
from flows.slot.building import Workpiece, build
from flows.slot.context import Bench, Parcel, Shop
from flows.slot.leases import Held
from flows.slot.publishing import publish_parcel
from flows.slot.recording import record_failure
from flows.slot.unexpected import failure_of, log_of
from matrix.model import PlannedModel
from matrix.status import FailureClass
from state.errors import LeaseLost, StateError
from workers.errors import BuildFailed

MOST_UNPUBLISHED = 2
"""Built packages that may wait for the feed before the building waits too: they take disk."""
MOST_RUNS = 3
"""A model that is worked on this often without an end and without a reason is given up."""
_LOOK_AGAIN = 0.2
"""Seconds between two looks at a stop while waiting for a bench or for the feed."""


@dataclass(frozen=True, slots=True)
class ModelResult:
    """How a model fared under one lease."""

    total: int
    failed: int
    done: bool
    """Nothing is left to do for it in this sweep."""


@dataclass(slots=True)
class Turn:
    """A bench on loan; giving it back twice does no harm."""

    shop: Shop
    bench: Bench | None

    def end(self) -> None:
        """Back to the shop."""
        bench, self.bench = self.bench, None
        if bench is not None:
            self.shop.benches.put(bench)


@dataclass(slots=True)
class ModelRun:
    """The work on one model under one lease."""

    shop: Shop
    held: Held
    model: PlannedModel
    turn: Turn
    _sent: dict[Workpiece, Future[bool]] = field(default_factory=dict)
    _room: threading.Semaphore = field(
        default_factory=lambda: threading.Semaphore(MOST_UNPUBLISHED)
    )

    def run(self) -> ModelResult:
        """Build and publish what is open. Raises `StateError`; anything else ends the cells."""
        pieces = list(Workpiece.all_of(self.shop.plan, self.model))
        try:
            self._work(pieces)
        except LeaseLost:
            self.held.gone.set()
        except StateError:
            raise
        except Exception as error:  # noqa: BLE001 - else the model is leased again, without end
            self._give_up(pieces, error)
        result = self._result(pieces)
        if result.done or self.held.gone.is_set():
            return result
        # Somebody may have asked for its cells anew meanwhile. That does not happen every time.
        if self.shop.count_run(self.model.name) < MOST_RUNS:
            return result
        self._give_up(
            pieces,
            BuildFailed(
                FailureClass.UNKNOWN,
                "model",
                f"{MOST_RUNS} runs of the model left this cell unfinished and gave no reason",
            ),
        )
        return self._result(pieces)

    def _work(self, pieces: list[Workpiece]) -> None:
        """Build and publish; build again, once, what had gone bad locally."""
        bad = self._pass(pieces, again=False)
        if bad and self._take_bench():
            self._pass(bad, again=True)

    def _take_bench(self) -> bool:
        """Wait for a bench; False: everything stops, or the model is somebody else's."""
        while not self.held.gone.is_set():
            try:
                self.turn.bench = self.shop.benches.get(timeout=_LOOK_AGAIN)
            except queue.Empty:
                continue
            return True
        return False

    def _give_up(self, pieces: list[Workpiece], error: Exception) -> None:
        """End all cells that are still open, with this as the reason."""
        if self.held.gone.is_set():
            return
        still_open = self._open()
        for piece in pieces:
            if piece.id in still_open:
                log = log_of(self.shop, piece.id)
                failure = failure_of(error, "model", log)
                record_failure(self.shop, self.held, piece.id, failure, log)

    def _pass(self, pieces: list[Workpiece], *, again: bool) -> list[Workpiece]:
        """Build and publish; returns the pieces whose bytes were bad."""
        self._sent.clear()
        try:
            self._build(pieces, again=again)
        finally:
            self.turn.end()
            wait(self._sent.values())
        return [piece for piece, sent in self._sent.items() if not sent.result()]

    def _build(self, pieces: list[Workpiece], *, again: bool) -> None:
        bench = self.turn.bench
        assert bench is not None
        bench.builder.begin_model()
        still_open = self._open()
        for piece in pieces:
            if self.held.gone.is_set():
                return
            if piece.id not in still_open:
                continue
            parcel = build(self.shop, self.held, bench, piece, again=again)
            if parcel is not None and self.shop.publisher is not None:
                self._send(piece, self.shop.publisher, parcel)

    def _send(self, piece: Workpiece, publisher: Publisher, parcel: Parcel) -> None:
        while not self._room.acquire(timeout=_LOOK_AGAIN):
            if self.held.gone.is_set():
                parcel.built.release()
                return
        try:
            sent = self.shop.lane.submit(publish_parcel, self.shop, publisher, self.held, parcel)
        except BaseException:
            parcel.built.release()
            raise
        sent.add_done_callback(lambda _sent: self._room.release())
        self._sent[piece] = sent

    def _open(self) -> frozenset[str]:
        statuses = self.shop.state.statuses(self.shop.sweep_id, self.model.name)
        return frozenset(cell for cell, status in statuses.items() if self.shop.is_open(status))

    def _result(self, pieces: list[Workpiece]) -> ModelResult:
        statuses = self.shop.state.statuses(self.shop.sweep_id, self.model.name)
        left = any(
            piece.id in statuses and self.shop.is_open(statuses[piece.id]) for piece in pieces
        )
        failed = sum(status.failed for status in statuses.values())
        return ModelResult(len(statuses), failed, done=not left)
