"""A folder through which `modelmill worker` and the slots on its machine talk.

Files, because the slots are children of Prefect's worker, which has no way to ask them to finish:
it knows only how to kill them. The folder goes when the worker goes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from machine.processes import started

VARIABLE = "MODELMILL_WORKER_ORDERS"
_DRAIN, _STOP, _OWNER, _BUSY = "drain", "stop", "owner", "busy-"


@dataclass(frozen=True, slots=True)
class Orders:
    """The folder, seen from both sides."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Orders:
        """Of the worker that this process is."""
        new = folder.with_suffix(".new")
        new.mkdir(parents=True)
        (new / _OWNER).write_text(_me(), encoding="ascii")
        new.rename(folder)  # so that no folder of this name is without its owner
        return cls(folder)

    def drain(self) -> None:
        """Finish the model at hand, take no other."""
        (self.folder / _DRAIN).touch()

    def stop(self) -> None:
        """Hand the model back."""
        (self.folder / _STOP).touch()

    @property
    def draining(self) -> bool:
        """Whether no other model is to be taken; also when the worker was killed."""
        return (self.folder / _DRAIN).exists() or self.orphaned

    @property
    def stopping(self) -> bool:
        """Whether the model is to be handed back at once."""
        return (self.folder / _STOP).exists()

    @property
    def orphaned(self) -> bool:
        """Whether the worker is gone, however it went."""
        try:
            owner = (self.folder / _OWNER).read_text(encoding="ascii")
        except OSError:
            return True  # the folder is gone
        return not _alive(owner)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While the block runs, the worker does not end."""
        mark = self.folder / f"{_BUSY}{os.getpid()}"
        try:
            mark.write_text(_me(), encoding="ascii")
        except OSError:
            mark = self.folder / "gone"
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def working(self) -> list[int]:
        """The pids of slots that live."""
        pids = []
        for mark in self.folder.glob(f"{_BUSY}*"):
            try:
                who = mark.read_text(encoding="ascii")
            except OSError:
                continue
            if _alive(who):
                pids.append(int(who.partition(" ")[0]))
        return pids

    def wait_until_idle(self, seconds: float) -> bool:
        """Whether all slots end within that time."""
        deadline = time.monotonic() + seconds
        while self.working():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True


def _me() -> str:
    return f"{os.getpid()} {started(os.getpid())}"


def _alive(who: str) -> bool:
    pid, _, when = who.partition(" ")
    return pid.isdigit() and started(int(pid)) in {when, ""}
