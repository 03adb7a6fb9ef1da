"""Publishing that is safe to repeat: find -> publish -> read back -> only then say so.

Every attempt first asks the feed for the version. So the questions that a lost reply, another
publisher or an earlier run leaves open are answered in one place, by comparing content: equal is
published, different is a conflict, absent is published now.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from feed.description import write_description
from feed.errors import (
    Cancelled,
    Conflict,
    Corrupt,
    FeedError,
    NoSpace,
    NotFound,
    Outage,
    OutcomeUnknown,
    TimeLimit,
    Unavailable,
    VersionExists,
)
from feed.interface import Feed, LocalFile, Progress, Published
from feed.pauses import Pauses
from matrix.digest import FileEntry, tree_digest

TRIES = 6
LONGEST_WAIT = 60.0
MISSES = 3
"""Packages in a row that a feed fails to accept although it answers; more is an outage."""

Sleep = Callable[[threading.Event, float], bool]
"""Wait for the event, at most so many seconds; True if it was set."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that the feed was read back and holds what was sent."""

    published: Published
    already_there: bool
    """The content was there before the first byte was sent (by an earlier run or another
    publisher)."""
    attempts: int
    """How many times bytes were sent."""
    seconds: float


@dataclass(frozen=True, slots=True)
class _Job:
    package: str
    version: str
    files: tuple[LocalFile, ...]
    description: str
    tree: str
    timeout: float | None
    progress: Progress | None
    cancel: threading.Event

    @property
    def title(self) -> str:
        return f"{self.package} {self.version}"

    def moved(self, done: int, total: int) -> None:
        """Passed to the feed as its progress: the way out of a long upload."""
        self.check()
        if self.progress:
            self.progress(done, total)

    def check(self) -> None:
        if self.cancel.is_set():
            raise Cancelled(f"publishing {self.title} was cancelled")


@dataclass(frozen=True, slots=True)
class _There:
    published: Published
    files: tuple[FileEntry, ...]


class Publisher:
    """Publishes to one feed. Safe to use from several threads."""

    def __init__(
        self,
        feed: Feed,
        *,
        tries: int = TRIES,
        sleep: Sleep = threading.Event.wait,
        clock: Callable[[], float] = time.monotonic,
        pauses: Pauses | None = None,
    ) -> None:
        self._feed = feed
        self._tries = tries
        self._pauses = pauses or Pauses()
        self._sleep = sleep
        self._clock = clock
        self._lock = threading.Lock()
        self._misses: set[tuple[str, str]] = set()
        """What failed to publish since the last success."""

    def publish(
        self,
        package: str,
        version: str,
        files: Sequence[LocalFile],
        *,
        description_text: str = "",
        tree: str,
        timeout: float | None = None,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> Receipt:
        """Publish, or find out that it is published. Raises a typed `FeedError`; an `Outage`
        when it is the feed that fails and not this package.

        `timeout` limits all attempts together; an outcome left open by the last one is still
        looked up. `cancel` ends waiting and copying at once (`Cancelled`).
        """
        job = _Job(
            package,
            version,
            tuple(files),
            write_description(tree, description_text),
            tree,
            timeout,
            progress,
            cancel or threading.Event(),
        )
        built = tree_digest(file.entry for file in job.files)
        if built != tree:
            raise Corrupt(f"{job.title}: the files have tree digest {built}, not {tree}")
        try:
            receipt = _Attempts(self._feed, job, self._clock, self._pauses).run(
                self._tries, self._sleep
            )
        except (Unavailable, OutcomeUnknown, NotFound) as error:
            if isinstance(error, NoSpace):
                raise
            self._missed(job, error)
            raise
        with self._lock:
            self._misses.clear()
        return receipt

    def _missed(self, job: _Job, error: FeedError) -> None:
        """Raise `Outage` if the feed does not answer either, or takes nothing at all."""
        job.check()
        try:
            self._feed.find(job.package, job.version)
        except (Unavailable, OutcomeUnknown, NotFound):
            raise Outage(f"the feed is away: {error.message}", hint=error.hint) from error
        with self._lock:
            self._misses.add((job.package, job.version))
            missed = len(self._misses)
        if missed >= MISSES:
            text = f"the feed took none of the last {missed} packages: {error.message}"
            raise Outage(text, hint=error.hint) from error


class _Attempts:
    """The attempts of one publish."""

    def __init__(self, feed: Feed, job: _Job, clock: Callable[[], float], pauses: Pauses) -> None:
        self._pauses = pauses
        self._feed = feed
        self._job = job
        self._clock = clock
        self._started = clock()
        self._sent = 0
        self._out_of_time = False

    def run(self, tries: int, sleep: Sleep) -> Receipt:
        job = self._job

        def nap(seconds: float) -> None:
            if sleep(job.cancel, seconds):
                job.check()

        def over(state: RetryCallState) -> bool:
            self._out_of_time = self._left(state.upcoming_sleep) <= 0
            return state.attempt_number >= tries or self._out_of_time

        retrying = Retrying(
            sleep=nap,
            before_sleep=self._tell,
            stop=over,
            wait=_wait,
            retry=retry_if_exception(_transient),
            reraise=True,
        )
        try:
            return retrying(self._attempt)
        except (Unavailable, OutcomeUnknown) as error:
            if self._out_of_time and not isinstance(error, NoSpace | TimeLimit):
                text = f"{job.title} was not published within {job.timeout:g} s: {error.message}"
                raise TimeLimit(text, hint=error.hint) from error
            raise

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self._pauses.tell(f"{self._job.title}: {error}", state.upcoming_sleep)

    def _attempt(self) -> Receipt:
        self._job.check()
        there = self._settle()
        if there:
            return self._receipt(there.published, already_there=self._sent == 0)
        try:
            self._send()
        except (VersionExists, OutcomeUnknown) as question:
            there = self._settle()
            if there:
                # Only a rival can have made it exist before our first send; ours may be unknown.
                rival = isinstance(question, VersionExists) and self._sent == 1
                return self._receipt(there.published, already_there=rival)
            raise OutcomeUnknown(f"{question.message}; the feed does not show it") from question
        return self._receipt(self._read_back(), already_there=False)

    def _send(self) -> None:
        job = self._job
        self._sent += 1
        self._feed.publish(
            job.package,
            job.version,
            job.files,
            job.description,
            timeout=None if job.timeout is None else max(0.0, self._left()),
            progress=job.moved,
        )

    def _settle(self) -> _There | None:
        """The version if it has our content; None if it does not exist; else raise `Conflict`."""
        job = self._job
        published = self._feed.find(job.package, job.version)
        if published is None:
            return None
        if published.deleted:
            raise Conflict(
                f"{job.title} was deleted from {self._feed.name} and its version stays taken",
                hint="publish under a new stamp",
            )
        files = self._feed.files(job.package, job.version)
        found = tree_digest(files)
        if published.tree and published.tree != found:
            raise Corrupt(
                f"{job.title} in {self._feed.name} says tree {published.tree} but holds {found}"
            )
        if found != job.tree:
            raise Conflict(
                f"{job.title} is in {self._feed.name} with other content: "
                f"tree {found} there, {job.tree} here",
                hint="versions never change: publish under a new stamp",
            )
        return _There(published, files)

    def _read_back(self) -> Published:
        job = self._job
        there = self._settle()
        if there is None:
            raise OutcomeUnknown(f"{self._feed.name} took {job.title} but does not show it")
        held = {entry.path: entry for entry in there.files}
        sent = {file.entry.path: file.entry for file in job.files}
        if held != sent:
            raise Corrupt(f"{job.title} was read back different: {_difference(sent, held)}")
        return there.published

    def _receipt(self, published: Published, *, already_there: bool) -> Receipt:
        seconds = self._clock() - self._started
        return Receipt(published, already_there, self._sent, seconds)

    def _left(self, ahead: float = 0.0) -> float:
        if self._job.timeout is None:
            return float("inf")
        return self._started + self._job.timeout - self._clock() - ahead


def _transient(error: BaseException) -> bool:
    # Only the owner of a full disk can help; the caller tries again when there is room.
    return isinstance(error, Unavailable | OutcomeUnknown) and not isinstance(error, NoSpace)


_backoff = wait_random_exponential(multiplier=1, max=LONGEST_WAIT)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, Unavailable) else None
    return max(_backoff(state), asked or 0.0)


def _difference(sent: dict[str, FileEntry], held: dict[str, FileEntry]) -> str:
    missing = sorted(sent.keys() - held.keys())
    extra = sorted(held.keys() - sent.keys())
    changed = sorted(path for path in sent.keys() & held.keys() if sent[path] != held[path])
    named = {"missing": missing, "not ours": extra, "changed": changed}
    return "; ".join(f"{what}: {', '.join(paths[:5])}" for what, paths in named.items() if paths)
