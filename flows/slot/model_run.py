"""One leased model: build its open cells one after the other, publish each while the next builds.

The slot (with its warm engine host) is given back as soon as the last cell is built, so that
another model can be built while this one's last packages are still on their way to the feed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from feed.publisher import Publisher
from flows.slot.building import build_cell
from flows.slot.cell_work import CellWork
from flows.slot.context import LOOK_AGAIN, LeasedRun
from flows.slot.publishing import publish_package
from matrix.model import PlannedPackage
from matrix.status import FailureClass, Status
from state.errors import LeaseLost, StateError
from workers.build.built import Built
from workers.errors import BuildFailed

MOST_UNPUBLISHED = 2
"""Built packages that may wait for the feed before the build waits too: they take disk."""
MOST_RUNS = 3
"""Runs that leave cells open without a reason before those cells fail."""


@dataclass(slots=True)
class ModelRun(LeasedRun):
    """The work on one model under one lease."""

    _sent: dict[str, Future[bool]] = field(default_factory=dict)
    _room: threading.Semaphore = field(
        default_factory=lambda: threading.Semaphore(MOST_UNPUBLISHED)
    )

    def run(self) -> bool:
        """Build and publish what is open; whether nothing is left. Raises `StateError`; any other
        error ends the cells."""
        leased = self._statuses()
        planned = self.sweep.plan.packages_of(self.context.models[self.name])
        packages = [one for one in planned if one.id in leased]
        try:
            bad = self._build_and_publish(packages)
            if bad and self._wait_for_slot():
                self._build_and_publish(bad, rebuilt=True)
        except LeaseLost:
            self.lease.gone.set()
        except StateError:
            raise
        except Exception as error:  # noqa: BLE001 - else the model is leased again, without end
            self._fail_open_cells(packages, error)
        done = self._is_done(packages)
        # A retry may reopen cells during a run, but not in every run: then the cell never ends.
        if done or self.lease.gone.is_set() or self.context.count_run(self.lease.lease) < MOST_RUNS:
            return done
        text = f"{MOST_RUNS} runs of the model left this cell unfinished and gave no reason"
        self._fail_open_cells(packages, BuildFailed(FailureClass.UNKNOWN, "model", text))
        return self._is_done(packages)

    def _build_and_publish(
        self, packages: Sequence[PlannedPackage], *, rebuilt: bool = False
    ) -> list[PlannedPackage]:
        """Work through the open packages; returns those whose local bytes were bad."""
        self._sent.clear()
        try:
            self.slot.builder.begin_model()
            still_open = self._open()
            for planned in packages:
                if self.lease.gone.is_set():
                    break
                if planned.id not in still_open:
                    continue
                work = CellWork(self.context, self.lease, self.slot, planned, rebuilt)
                built = build_cell(work)
                if built is not None and self.sweep.publisher is not None:
                    self._send(work, self.sweep.publisher, built)
        finally:
            self.give_back_slot()
            wait(self._sent.values())
        bad = {name for name, sent in self._sent.items() if not sent.result()}
        return [planned for planned in packages if planned.id in bad]

    def _send(self, work: CellWork, publisher: Publisher, built: Built) -> None:
        while not self._room.acquire(timeout=LOOK_AGAIN):
            work.report(f"waiting for the feed to take {MOST_UNPUBLISHED} packages before it")
            if self.lease.gone.is_set():
                built.release()
                return
        try:
            sent = self.context.publish_pool.submit(publish_package, work, publisher, built)
        except BaseException:
            built.release()
            raise
        sent.add_done_callback(lambda _sent: self._room.release())
        self._sent[work.id] = sent

    def _wait_for_slot(self) -> bool:
        """Take a slot again; False if everything stops or the lease is lost."""
        while not self.lease.gone.is_set():
            slot = self.context.take_slot()
            if slot is not None:
                self.slot, self.has_slot = slot, True
                return True
        return False

    def _fail_open_cells(self, packages: Sequence[PlannedPackage], error: Exception) -> None:
        if self.lease.gone.is_set():
            return
        still_open = self._open()
        for planned in packages:
            if planned.id in still_open:
                CellWork(self.context, self.lease, self.slot, planned).fail(error, "model")

    def _open(self) -> frozenset[str]:
        statuses = self._statuses()
        return frozenset(cell for cell, status in statuses.items() if self.context.is_open(status))

    def _statuses(self) -> dict[str, Status]:
        """Of the cells that the lease covers."""
        lease = self.lease.lease
        return self.sweep.state.statuses(lease.sweep_id, lease.model, lease.needs)

    def _is_done(self, packages: Sequence[PlannedPackage]) -> bool:
        statuses = self._statuses()
        left = (statuses[one.id] for one in packages if one.id in statuses)
        return not any(self.context.is_open(status) for status in left)
