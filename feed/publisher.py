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
from feed.interface import Feed, LocalFile, Published
from feed.pauses import Pauses, asked_pause
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
        cancel: threading.Event | None = None,
    ) -> Receipt:
        """Publish, or find out that it is published. Raises a typed `FeedError`; an `Outage`
        when it is the feed that fails and not this package.

        `timeout` limits all attempts together; an outcome left open by the last one is still
        looked up. `cancel` ends waiting and copying at once (`Cancelled`).
        """
        attempts = _Attempts(
            self._feed,
            package,
            version,
            tuple(files),
            write_description(tree, description_text),
            tree,
            timeout,
            cancel or threading.Event(),
            self._pauses,
            self._clock,
        )
        try:
            receipt = attempts.run(self._tries, self._sleep)
        except NoSpace:
            raise
        except (Unavailable, OutcomeUnknown, NotFound) as error:
            attempts.check()
            self._missed(package, version, error)
            raise
        with self._lock:
            self._misses.clear()
        return receipt

    def _missed(self, package: str, version: str, error: FeedError) -> None:
        """Raise `Outage` if the feed does not answer either, or takes nothing at all."""
        try:
            self._feed.find(package, version)
        except (Unavailable, OutcomeUnknown, NotFound):
            raise Outage(f"the feed is unavailable: {error.message}", hint=error.hint) from error
        with self._lock:
            self._misses.add((package, version))
            missed = len(self._misses)
        if missed >= MISSES:
            text = f"the feed accepted none of the last {missed} packages: {error.message}"
            raise Outage(text, hint=error.hint) from error


@dataclass
class _Attempts:
    """The attempts of one publish."""

    feed: Feed
    package: str
    version: str
    files: tuple[LocalFile, ...]
    description: str
    tree: str
    timeout: float | None
    cancel: threading.Event
    pauses: Pauses
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._title = f"{self.package} {self.version}"
        self._started = self.clock()
        self._sent = 0
        self._out_of_time = False
        built = tree_digest(file.entry for file in self.files)
        if built != self.tree:
            raise Corrupt(f"{self._title}: the files have tree digest {built}, not {self.tree}")

    def check(self) -> None:
        """Raise `Cancelled` if the caller wants no more."""
        if self.cancel.is_set():
            raise Cancelled(f"publishing {self._title} was cancelled")

    def run(self, tries: int, sleep: Sleep) -> Receipt:
        def nap(seconds: float) -> None:
            if sleep(self.cancel, seconds):
                self.check()

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
                text = f"{self._title} was not published within {self.timeout:g} s: {error.message}"
                raise TimeLimit(text, hint=error.hint) from error
            raise

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self.pauses.tell(f"{self._title}: {error}", state.upcoming_sleep)

    def _attempt(self) -> Receipt:
        self.check()
        there = self._settle()
        if there:
            return Receipt(there[0], self._sent == 0, self._sent)
        try:
            self._send()
        except (VersionExists, OutcomeUnknown) as question:
            there = self._settle()
            if there:
                # Only a rival can have made it exist before our first send; ours may be unknown.
                rival = isinstance(question, VersionExists) and self._sent == 1
                return Receipt(there[0], rival, self._sent)
            raise OutcomeUnknown(f"{question.message}; the feed does not show it") from question
        return Receipt(self._read_back(), already_there=False, attempts=self._sent)

    def _send(self) -> None:
        self._sent += 1
        self.feed.publish(
            self.package,
            self.version,
            self.files,
            self.description,
            timeout=None if self.timeout is None else max(0.0, self._left()),
            progress=lambda _done, _total: self.check(),  # the way out of a long upload
        )

    def _settle(self) -> tuple[Published, tuple[FileEntry, ...]] | None:
        """The version if it has our content; None if it does not exist; else raise `Conflict`."""
        published = self.feed.find(self.package, self.version)
        if published is None:
            return None
        if published.deleted:
            raise Conflict(
                f"{self._title} was deleted from {self.feed.name} and its version stays taken",
                hint="publish under a new stamp",
            )
        files = self.feed.files(self.package, self.version)
        found = tree_digest(files)
        if published.tree and published.tree != found:
            raise Corrupt(
                f"{self._title} in {self.feed.name} says tree {published.tree} but holds {found}"
            )
        if found != self.tree:
            raise Conflict(
                f"{self._title} is in {self.feed.name} with other content: "
                f"tree {found} there, {self.tree} here",
                hint="versions never change: publish under a new stamp",
            )
        return published, files

    def _read_back(self) -> Published:
        there = self._settle()
        if there is None:
            raise OutcomeUnknown(f"{self.feed.name} took {self._title} but does not show it")
        published, files = there
        held = {entry.path: entry for entry in files}
        sent = {file.entry.path: file.entry for file in self.files}
        if held != sent:
            raise Corrupt(f"{self._title} does not hold what was sent: {_difference(sent, held)}")
        return published

    def _left(self, ahead: float = 0.0) -> float:
        if self.timeout is None:
            return float("inf")
        return self._started + self.timeout - self.clock() - ahead


def _transient(error: BaseException) -> bool:
    # Only the owner of a full disk can help; the caller tries again when there is room.
    return isinstance(error, Unavailable | OutcomeUnknown) and not isinstance(error, NoSpace)


_backoff = wait_random_exponential(multiplier=1, max=LONGEST_WAIT)


def _wait(state: RetryCallState) -> float:
    return max(_backoff(state), asked_pause(state) or 0.0)


def _difference(sent: dict[str, FileEntry], held: dict[str, FileEntry]) -> str:
    missing = sorted(sent.keys() - held.keys())
    extra = sorted(held.keys() - sent.keys())
    changed = sorted(path for path in sent.keys() & held.keys() if sent[path] != held[path])
    named = {"missing": missing, "not ours": extra, "changed": changed}
    return "; ".join(f"{what}: {', '.join(paths[:5])}" for what, paths in named.items() if paths)
