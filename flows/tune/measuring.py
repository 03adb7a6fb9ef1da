"""Measures a trial beside the baseline: records the sessions, and retries once after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flows.tune.place import Place
from flows.tune.record import Crash, Kept
from matrix.digest import value_digest
from matrix.trials import SessionKind, Verdict
from workers.measure.benchmark import benchmark
from workers.measure.comparison import NULL, OTHER, Comparison, Sessions, added, compare
from workers.measure.result import Benchmark, Fault, Protocol
from workers.measure.subject import Subject
from workers.measure.verdict import LEVEL, Judgement, judge

SCREEN = 200
"""Iterations of the one session that screens a trial, at most."""
RETRY = 0.4
"""Of the iterations, in the second try after a crash."""
LEAST = 20
REST = 20.0
"""Seconds without work before the second try: a device gets its memory and its heat away."""
TIMEOUT = "TIMEOUT"
OPENING = ("open", "feed")
"""Faults that would come again."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two builds that are compared."""

    key: str
    artifact: str
    subject: Subject


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of the sessions of one kind; without a judgement it crashed."""

    judgement: Judgement | None
    crashes: tuple[Crash, ...] = ()
    whose: str = ""
    """The key of the build that crashed."""
    warnings: tuple[str, ...] = ()
    fresh: bool = True
    """Whether all its sessions were measured now."""

    @property
    def verdict(self) -> Verdict:
        """What a crash means for the trial."""
        timed_out = self.crashes[-1].failure == TIMEOUT
        return Verdict.TIMED_OUT if timed_out else Verdict.CRASHED


@dataclass(slots=True)
class Measuring:
    """Measurements of one tuning. Nothing disturbs them, and each finished session is kept."""

    kept: Kept
    place: Place
    seconds: float = 0.0
    """Spent in measuring."""

    def alone(self, subject: Subject, what: str) -> Benchmark:
        """A single short session, for orientation."""
        with self._undisturbed(what):
            return benchmark(self.place.driver(), subject, self.protocol(SessionKind.SCREEN, 0))

    def measure(
        self,
        trial: str,
        kind: SessionKind,
        this: Side,
        other: Side,
        before: tuple[Crash, ...] = (),
        level: float = LEVEL,
        crashed: Callable[[Crash], object] = lambda _crash: None,
    ) -> Measured:
        """Compare `this` with the other one. A crash is tried once more.

        `before`: crashes of such sessions in an earlier run; `crashed`: is told of a new one, so
        that it counts also if this run is killed.
        """
        crashes = before
        while True:
            found, sessions, seed = self._compare(trial, kind, this, other, len(crashes))
            if not found.failed:
                warnings = tuple(_warnings(found, this, other))
                matters = self.kept.tuning.min_gain / 100
                judgement = judge(added(sessions.used), seed, level, matters)
                return Measured(judgement, crashes, "", warnings, fresh=not sessions.kept)
            fault, whose = _fault(found, this, other)
            new = Crash(
                kind, fault.at, fault.failure, fault.message, fault.log_tail,
                found.this.protocol.iterations,
            )  # fmt: skip
            crashed(new)
            crashes = (*crashes, new)
            if len(crashes) > 1 or fault.at in OPENING:
                return Measured(None, crashes, whose)
            self.place.rest(REST)

    def protocol(self, kind: SessionKind, crashes: int) -> Protocol:
        """How sessions of a kind are made after so many crashes."""
        full = self.kept.tuning.protocol
        count = full.iterations
        if kind is SessionKind.SCREEN:
            full, count = replace(full, sessions=1), min(SCREEN, count)
        if crashes:
            count = min(count, max(LEAST, round(count * RETRY)))
        return replace(full, iterations=count)

    def _compare(
        self, trial: str, kind: SessionKind, this: Side, other: Side, crashes: int
    ) -> tuple[Comparison, Sessions, int]:
        artifacts = f"{this.artifact} {other.artifact}"
        # The second try has an order of its own, so it never continues from sessions of the first.
        seed = seed_of(self.kept.tuning.seed, trial, kind, crashes)
        sessions = Sessions(
            self.kept.sessions(trial, kind, artifacts),
            lambda one: self.kept.add(trial, kind, artifacts, one),
        )
        protocol = self.protocol(kind, crashes)
        with self._undisturbed(f"{trial}: {kind}"):
            found = compare(
                self.place.driver(), this.subject, other.subject, protocol, seed, sessions
            )
        return found, sessions, seed

    @contextmanager
    def _undisturbed(self, what: str) -> Iterator[None]:
        with self.place.quiet(what):
            began = self.place.clock()
            try:
                yield
            finally:
                self.seconds += self.place.clock() - began


def _warnings(found: Comparison, this: Side, other: Side) -> Iterator[str]:
    """The remarks on the machine, and those on the times of each subject."""
    yield from (text for text in found.this.warnings if text in found.other.warnings)
    for side, result, beside in (
        (this, found.this, found.other), (other, found.other, found.this),
    ):  # fmt: skip
        yield from (
            f"{side.key}: {text}" for text in result.warnings if text not in beside.warnings
        )


def seed_of(seed: int, trial: str, kind: SessionKind, attempt: int) -> int:
    """Of the order of a comparison: it depends on nothing that was measured before."""
    return int(value_digest([seed, trial, kind.value, attempt])[:7], 16)


def _fault(found: Comparison, this: Side, other: Side) -> tuple[Fault, str]:
    """The first fault, and the key of the build that has it."""
    place = next(at for at, graph in enumerate(found.graphs) if graph.judgement is None)
    mine = found.graphs[place].broken not in {OTHER, NULL}
    result = (found.this if mine else found.other).graphs[place]
    assert result.fault is not None
    return result.fault, (this if mine else other).key
