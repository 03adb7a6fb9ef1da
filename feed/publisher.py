"""Publishing that is safe to repeat: find -> publish -> read back -> only then say so.

Every attempt first asks the feed for the version. So the questions that a lost reply, another
publisher or an earlier run leaves open are answered in one place, by comparing content: equal is
published, different is a conflict, absent is published now.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from feed import errors
from feed.checked import differences
from feed.interface import Feed, LocalFile, Published, write_description
from feed.pauses import Pauses, pause_after
from matrix.digest import FileEntry, tree_digest

TRIES = 6
LONGEST_WAIT = 60.0
AGAIN = 15.0
"""Seconds between two looks at a feed that is away."""
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


@dataclass(eq=False)
class Publisher:
    """Publishes to one feed. Safe to use from several threads."""

    feed: Feed
    _: KW_ONLY
    tries: int = TRIES
    patience: float = 0.0
    """Seconds in which an outage of the feed may end."""
    sleep: Sleep = threading.Event.wait
    clock: Callable[[], float] = time.monotonic
    pauses: Pauses = field(default_factory=Pauses, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _misses: set[tuple[str, str]] = field(default_factory=set, init=False)
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
        built = tree_digest(file.entry for file in files)
        if built != tree:
            raise errors.Corrupt(
                f"{package} {version}: the files have tree digest {built}, not {tree}"
            )
        description = write_description(tree, description_text)
        limit = float("inf") if timeout is None else timeout
        cancel = cancel or threading.Event()
        until = self.clock() + self.patience
        while True:
            attempts = _Attempts(self, package, version, files, description, tree, limit, cancel)
            try:
                receipt = attempts.run()
            except errors.NoSpace:
                raise
            except (errors.Unavailable, errors.OutcomeUnknown, errors.NotFound) as error:
                attempts.check()
                try:
                    self._missed(package, version, error)
                except errors.Outage as outage:
                    if self.clock() >= until:
                        raise
                    self.pauses.tell(f"{package} {version}: {outage}", AGAIN)
                    self.sleep(cancel, AGAIN)
                    attempts.check()
                    continue
                raise
            with self._lock:
                self._misses.clear()
            return receipt

    def _missed(self, package: str, version: str, error: errors.FeedError) -> None:
        """Raise `Outage` if the feed does not answer either, or takes nothing at all."""
        try:
            self.feed.find(package, version)
        except (errors.Unavailable, errors.OutcomeUnknown, errors.NotFound):
            raise errors.Outage(
                f"the feed is unavailable: {error.message}", hint=error.hint
            ) from error
        with self._lock:
            self._misses.add((package, version))
            missed = len(self._misses)
        if missed >= MISSES:
            text = f"the feed accepted none of the last {missed} packages: {error.message}"
            raise errors.Outage(text, hint=error.hint) from error


@dataclass
class _Attempts:
    """The attempts of one publish."""

    publisher: Publisher
    package: str
    version: str
    files: Sequence[LocalFile]
    description: str
    tree: str
    limit: float
    cancel: threading.Event

    def __post_init__(self) -> None:
        self.feed = self.publisher.feed
        self._title = f"{self.package} {self.version}"
        self._deadline = self.publisher.clock() + self.limit
        self._sent = 0

    def check(self) -> None:
        """Raise `Cancelled` if the caller wants no more."""
        if self.cancel.is_set():
            raise errors.Cancelled(f"publishing {self._title} was cancelled")

    def run(self) -> Receipt:
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt()
            except errors.NoSpace:
                raise  # only the owner of a full disk can help
            except (errors.Unavailable, errors.OutcomeUnknown) as error:
                pause = pause_after(error, attempt, LONGEST_WAIT)
                late = self._left() <= pause
                if late and not isinstance(error, errors.TimeLimit):
                    text = f"{self._title} was not published within {self.limit:g} s"
                    raise errors.TimeLimit(f"{text}: {error.message}", hint=error.hint) from error
                if late or attempt >= self.publisher.tries:
                    raise
                self.publisher.pauses.tell(f"{self._title}: {error}", pause)
            if self.publisher.sleep(self.cancel, pause):
                self.check()

    def _attempt(self) -> Receipt:
        self.check()
        there = self._settle()
        if there:
            return Receipt(there[0], self._sent == 0, self._sent)
        try:
            self._send()
        except (errors.VersionExists, errors.OutcomeUnknown) as question:
            there = self._settle()
            if there:
                # Only a rival can have made it exist before our first send; ours may be unknown.
                rival = isinstance(question, errors.VersionExists) and self._sent == 1
                return Receipt(there[0], rival, self._sent)
            raise errors.OutcomeUnknown(
                f"{question.message}; the feed does not show it"
            ) from question
        return Receipt(self._read_back(), already_there=False, attempts=self._sent)

    def _send(self) -> None:
        self._sent += 1
        self.feed.publish(
            self.package,
            self.version,
            self.files,
            self.description,
            timeout=None if self.limit == float("inf") else max(0.0, self._left()),
            progress=lambda _done, _total: self.check(),  # the way out of a long upload
        )

    def _settle(self) -> tuple[Published, tuple[FileEntry, ...]] | None:
        """The version if it has our content; None if it does not exist; else raise `Conflict`."""
        published = self.feed.find(self.package, self.version)
        if published is None:
            return None
        if published.deleted:
            raise errors.Conflict(
                f"{self._title} was deleted from {self.feed.name}, and cannot be used again",
                hint="publish under a new stamp",
            )
        files = self.feed.files(self.package, self.version)
        found = tree_digest(files)
        if published.tree and published.tree != found:
            raise errors.Corrupt(
                f"{self._title} in {self.feed.name} says tree {published.tree} but holds {found}"
            )
        if found != self.tree:
            raise errors.Conflict(
                f"{self._title} is in {self.feed.name} with other content: "
                f"tree {found} there, {self.tree} here",
                hint="versions never change: publish under a new stamp",
            )
        return published, files

    def _read_back(self) -> Published:
        there = self._settle()
        if there is None:
            raise errors.OutcomeUnknown(f"{self.feed.name} took {self._title} but does not show it")
        published, files = there
        held = {entry.path: entry.sha256 for entry in files}
        sent = {file.entry.path: file.entry.sha256 for file in self.files}
        if found := differences(sent, held):
            raise errors.Corrupt(f"{self._title} does not hold what was sent: {'; '.join(found)}")
        return published

    def _left(self) -> float:
        return self._deadline - self.publisher.clock()
