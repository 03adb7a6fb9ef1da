"""Prepares a trial for measuring: builds it by the ordinary stages, verifies it, and opens it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from flows.packages.measured import Choice, Finder
from flows.tune.record import Making
from matrix.model import Cell
from matrix.overlay import trial_digest
from workers.build.builder import Builder
from workers.build.built import Built
from workers.build.stages import Rung
from workers.host.watch import Watching
from workers.measure.subject import Subject
from workers.verify.subject import Subject as Package
from workers.verify.verifier import Verifier

LEVEL = "task"
"""Parity, and the catalog's task metric if it has one."""


@dataclass(frozen=True, slots=True)
class Made:
    """A build that can be measured until it is released."""

    cell: str
    tree: str
    artifact: str
    """The digest of what is measured: equal ones need not be measured twice."""
    making: Making
    subject: Subject
    built: Built | None = None
    """None in tests that build nothing."""

    def release(self) -> None:
        """Give up the local bytes; the store keeps its own."""
        if self.built is not None:
            self.built.release()


class Maker(Protocol):
    """Makes and checks the builds of a tuning."""

    def make(self, cell: Cell, session: Mapping[str, str]) -> Made:
        """Build a cell; `session`: how it is opened. Raises `BuildFailed`, and `UsageError` if this
        machine cannot measure it."""

    def check(self, made: Made) -> tuple[Rung, ...]:
        """The rungs of the ladder, up to the task metric. Raises `BuildFailed`."""


@dataclass(slots=True)
class Workshop:
    """The real one. What it does waits until no measurement is made on this machine."""

    builder: Builder
    verifier: Verifier
    finder: Finder
    busy: Callable[[str], AbstractContextManager[object]]
    """A reservation for work that would disturb a measurement."""
    watching: Watching
    reserves: bool = False
    """Whether the builder reserves for each of its stages: a place that were held meanwhile would
    keep everybody waiting, us behind whoever wants to measure."""

    def make(self, cell: Cell, session: Mapping[str, str]) -> Made:
        """Build it; what equal stages made before is reused."""
        choice = Choice(
            target=None if cell.profile else cell.target.label,
            profile=cell.profile.label if cell.profile else None,
        )
        runtime = self.finder.runtime(choice).opening(session)
        with nullcontext() if self.reserves else self.busy(f"build {cell.id}"):
            self.builder.begin_model()
            built = self.builder.build(cell, self.watching)
        try:
            subject = self.finder.built(built, choice)
        except BaseException:
            built.release()
            raise
        return Made(
            cell=cell.id,
            tree=built.tree,
            artifact=trial_digest((file.entry for file in built.files), session),
            making=_making(built),
            subject=replace(subject, runtime=runtime),
            built=built,
        )

    def check(self, made: Made) -> tuple[Rung, ...]:
        """Judge it; equal bytes were examined once already."""
        assert made.built is not None
        with self.busy(f"check {made.cell}"):
            climbed = self.verifier.climb(Package.of(made.built), self.watching)
        return climbed.rungs


def _making(built: Built) -> Making:
    names = [(f"{run.stage} {run.component}".rstrip(), run.reused) for run in built.stages]
    return Making(
        seconds=round(built.seconds, 3),
        ran=tuple(name for name, reused in names if not reused),
        reused=tuple(name for name, reused in names if reused),
    )
