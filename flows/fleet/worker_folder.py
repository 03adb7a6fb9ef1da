"""How `modelmill worker` talks to the slots and parents on its machine: a folder and variables.

Works around Prefect (test_a_worker_that_is_told_to_stop_kills_its_runs): a Prefect worker cannot
ask its runs to finish; it only kills them. So the runs read from files whether to drain, and write
files that tell `modelmill worker` which of them still run. The worker removes the folder when it
ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from machine.files import move, unlink
from machine.processes import Process, claim, owner_of

FOLDER = "MODELMILL_WORKER_FOLDER"
WORDS = "MODELMILL_WORKER_WORDS"
"""What the machine announces."""
CWD = "MODELMILL_WORKER_CWD"
"""Relative settings start there: Prefect's worker runs everything in a temporary folder."""

_DRAIN, _STOP = "drain", "stop"
_OWNER, _BUSY = "owner-", "busy-"
"""How the names of files begin that claim the folder, or a place in it, for a process."""


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """The folder, seen from both sides."""

    path: Path

    @classmethod
    def make(cls, path: Path) -> WorkerFolder:
        """Make the folder of a worker that runs in this process."""
        new = path.with_suffix(".new")
        new.mkdir(parents=True)
        (new / f"{_OWNER}{claim()}").touch()
        move(new, path)  # so that it never exists without its owner
        return cls(path)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> WorkerFolder | None:
        """The folder of the worker that started this process, if one did."""
        path = environ.get(FOLDER)
        return cls(Path(path)) if path else None

    def drain(self) -> None:
        """Have slots finish the model at hand and take no other."""
        (self.path / _DRAIN).touch()

    def stop(self) -> None:
        """Have slots hand their model back."""
        (self.path / _STOP).touch()

    @property
    def draining(self) -> bool:
        """Whether no other model is to be taken; also when the worker was killed."""
        return (self.path / _DRAIN).exists() or self.orphaned

    @property
    def stopping(self) -> bool:
        """Whether the model is to be handed back at once."""
        return (self.path / _STOP).exists()

    @property
    def orphaned(self) -> bool:
        """Whether the worker is gone."""
        return not self._alive(_OWNER)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While the block runs, the worker waits for this process."""
        mark = self.path / f"{_BUSY}{claim()}"
        with suppress(OSError):  # the folder is gone with its worker
            mark.touch()
        try:
            yield
        finally:
            unlink(mark)

    def working(self) -> list[int]:
        """The pids of slots and parents that run."""
        return [one.pid for one in self._alive(_BUSY)]

    def _alive(self, mark: str) -> list[Process]:
        """The processes that live of those whose claims begin so."""
        owners = (owner_of(path.name) for path in self.path.glob(f"{mark}*"))
        return [one for one in owners if one is not None and not one.is_dead()]

    def wait_until_idle(self, seconds: float) -> bool:
        """Whether all of them end within that time."""
        deadline = time.monotonic() + seconds
        while self.working():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True
