"""The work on one cell or export: where it runs, and how its results and failures are recorded.

Packages that are not published stay on this machine for inspection, within a share of the disk
budget.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.slot.context import Slot, SweepContext
from flows.slot.leases import RenewedLease
from flows.sweep.lifecycle import Sweep
from machine.files import remove, remove_tree
from matrix.digest import BUILD_RECORD, MANIFEST
from matrix.errors import MillError
from matrix.model import PlannedPackage
from matrix.status import FailureClass, Status
from state.records import Facts, StageRun
from workers.build.built import Built
from workers.build.stage_runner import os_failure
from workers.errors import BuildFailed, StoreError

TRACEBACK_LINES = 20
"""How much of a traceback the state keeps; the log has all of it."""
SHARE = 4
"""Kept packages may take one SHARE-th of the disk budget."""
RECORDS = {MANIFEST, BUILD_RECORD}

_STATUS_OF: dict[FailureClass | None, Status] = {
    FailureClass.TIMEOUT: Status.BUILD_TIMEOUT,
    FailureClass.VERIFY: Status.VERIFY_FAILED,
    FailureClass.UNSUPPORTED: Status.UNSUPPORTED,
}


@dataclass(frozen=True, slots=True, eq=False)
class CellWork:
    """One cell (or export) of a leased model, in the slot that builds it."""

    context: SweepContext
    lease: RenewedLease
    slot: Slot
    planned: PlannedPackage
    rebuilt: bool = False
    """Built a second time because the bytes of the first build had gone bad."""

    @property
    def sweep(self) -> Sweep:
        """What the slots work on."""
        return self.context.sweep

    @property
    def id(self) -> str:
        """The id of the cell or export."""
        return self.planned.id

    @property
    def cancelled(self) -> bool:
        """Whether the lease is lost or everything stops."""
        return self.lease.gone.is_set()

    @property
    def log(self) -> Path:
        """The file that receives everything about this cell."""
        return self.context.log_of(self.id)

    def record(
        self, status: Status, facts: Facts | None = None, stages: Sequence[StageRun] = ()
    ) -> None:
        """One transaction; raises `LeaseLost` when the model is no longer ours."""
        if self.lease.activity and self.lease.activity[0] == self.id:
            self.lease.activity = None
        self.sweep.state.record(
            self.lease.lease, self.sweep.info.id, self.id, status, facts or Facts(), stages=stages
        )

    def report(self, text: str) -> None:
        """Let those who watch see what is being done: `exporting`, `calibrating 40/128`."""
        self.lease.say(self.id, text)

    def keep(self, built: Built) -> Path:
        """Keep a package that is not published, within its share of the disk budget."""
        folder, budget = self.context.folders.kept, self.sweep.settings.disk_budget or 0
        return keep(built, self.planned.package, self.planned.version, folder, budget)

    def fail(self, error: Exception, stage: str, evidence: dict[str, Any] | None = None) -> None:
        """Record that the cell could not be built or did not pass verification."""
        facts = self.failure_facts(error, stage, evidence)
        self.record(_STATUS_OF.get(facts.failure, Status.BUILD_FAILED), facts)

    def failure_facts(
        self, error: Exception, stage: str, evidence: dict[str, Any] | None = None
    ) -> Facts:
        """What the state keeps of a failure."""
        failure = self.failure_of(error, stage)
        return Facts(
            failure=failure.failure,
            stage=failure.stage,
            exit_code=failure.process_exit,
            message=failure.reason,
            hint=failure.hint or f"the whole log: {self.log}",
            log_tail=failure.log_tail,
            retryable=failure.retryable,
            evidence=evidence,
        )

    def failure_of(self, error: Exception, stage: str) -> BuildFailed:
        """What any exception means for this cell; an unexpected one leaves a traceback."""
        if isinstance(error, BuildFailed):
            return error
        lines = traceback.format_exception(error)
        with suppress(OSError):  # the disk may be what failed
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a", encoding="utf-8") as stream:
                stream.writelines(lines)
        if isinstance(error, OSError):
            failure = os_failure(stage, error)
        elif isinstance(error, MillError):
            kind = FailureClass.DISK if isinstance(error, StoreError) else FailureClass.UNKNOWN
            failure = BuildFailed(kind, stage, error.message, hint=error.hint)
        else:
            text = f"unexpected {type(error).__name__}: {error}".strip().removesuffix(":")
            failure = BuildFailed(FailureClass.UNKNOWN, stage, text)
        failure.log_tail = "".join(lines[-TRACEBACK_LINES:])
        return failure


def keep(built: Built, package: str, version: str, root: Path, budget: int = 0) -> Path:
    """Move a package below `root`, replacing an earlier one of the same name.

    Over budget, the oldest packages lose their model files; their records always stay.
    """
    dest = root / package / version
    remove_tree(dest)
    built.move_to(dest)
    if budget:
        trim(root, budget // SHARE)
    return dest


def trim(root: Path, limit: int) -> None:
    """Strip the oldest packages below `root` down to their records."""
    folders = [path.parent for path in root.glob(f"*/*/{MANIFEST}")]
    folders.sort(key=lambda folder: folder.stat().st_mtime)
    sizes = {folder: kept_bytes(folder) for folder in folders}
    total = sum(sizes.values())
    for folder in folders:
        if total <= limit:
            break
        for path in folder.iterdir():
            if path.name not in RECORDS:
                remove(path)
        total -= sizes[folder]


def kept_bytes(folder: Path) -> int:
    """Bytes of the kept packages below a folder: they count towards the disk budget."""
    total = 0
    for place, _folders, names in os.walk(folder):  # another slot may remove files meanwhile
        for name in names:
            with suppress(OSError):
                total += Path(place, name).stat().st_size
    return total
