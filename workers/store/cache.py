"""Stage results that machines share: actions by the keys of their stages, blobs by their digests.

A cache has two key spaces, `ac/KEY` and `cas/SHA256`. It may lose entries at any time and may hold
anything. A result is taken only if its record is about the key, its paths stay inside a package and
every byte has its digest. Nothing that a cache does fails a build. Whoever can write to it decides
what others build with; that is why records can be signed.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from machine.disk import free, reason
from machine.files import flush_file, hash_file
from machine.waits import Cancelled, Told, WaitRules, untold
from matrix.codec import from_json, parse_json
from matrix.digest import SHA256, LocalFile, value_digest
from matrix.errors import MillError
from matrix.paths import path_problems
from workers.store.actions import Action
from workers.store.store import Store

MOST_RECORD = 16 << 20
"""Bytes of a record; ours have a few thousand."""
MOST_FILES = 20_000
TRIES = 2
PAUSE = 0.5
"""Seconds between two tries."""
AWAY, LONGEST_AWAY = 60.0, 900.0
"""Seconds without a request to a cache that could not be used; each time twice as many."""
MOST_UNFIT = 10
"""After so many wrong results, a process takes nothing more from a cache."""

_AWAY, _TAKES_NOTHING = "is not used for now", "takes nothing for now"

T = TypeVar("T")
Sign = Callable[[bytes], bytes]
"""The signature of a record, in one line."""
Check = Callable[[bytes, bytes], None]
"""Raises `MillError` unless the first is a signature of the second."""


class CacheTrouble(Exception):
    """A cache cannot be used now."""


class CacheRefuses(Exception):
    """A cache does not let this machine do that, however often it asks."""


class TooLarge(Exception):
    """A cache takes no entry of this size."""


class Unfit(Exception):
    """What a cache holds is not what it should be."""


class Place(Protocol):
    """Where the entries are. Every call raises `CacheTrouble`, `CacheRefuses` or `Cancelled`."""

    @property
    def where(self) -> str:
        """As people read it, without credentials."""

    def fetch(self, name: str, out: BinaryIO, most: int, cancel: threading.Event | None) -> bool:
        """Write the bytes of an entry; False: there is none. Raises `Unfit` if there are more."""

    def has(self, name: str, cancel: threading.Event | None) -> bool:
        """Whether there is such an entry."""

    def put(self, name: str, source: Path | bytes, cancel: threading.Event | None) -> None:
        """Keep an entry, or replace it. Raises `TooLarge`, or `OSError` for an unreadable file."""


def copy(blocks: Iterable[bytes], out: BinaryIO, most: int, cancel: threading.Event | None) -> None:
    """Write blocks that somebody else has made, at most so many bytes. Raises `Unfit` for more."""
    size = 0
    for block in blocks:
        refuse_if_cancelled(cancel)
        size += len(block)
        if size > most:
            raise Unfit(f"it has more than {most} bytes")
        out.write(block)


def refuse_if_cancelled(cancel: threading.Event | None) -> None:
    """Raise `Cancelled` once somebody has asked to stop."""
    if cancel is not None and cancel.is_set():
        raise Cancelled("the build was cancelled")


class Cache:
    """A cache as the builds of a process use it; safe to share between threads.

    `told` gets a line of news, or an empty one when a cache that was away is used again.
    """

    def __init__(
        self,
        place: Place,
        store: Store,
        *,
        writes: bool = True,
        sign: Sign | None = None,
        check: Check | None = None,
        told: Told = untold,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place, self._store = place, store
        self._sign, self._check = sign, check
        self._told, self._clock = told, clock
        self._takes_until = self._gives_until = 0.0
        """Before these times the cache is not asked, or given nothing."""
        if not writes:
            self._gives_until = math.inf
        self._away = AWAY
        self._there: set[str] = set()
        """Keys whose results are known to be in the cache."""
        self._damaged: set[str] = set()
        """Keys of results that are in the cache, but not as they should be."""
        self._unfit = 0
        self._news = ""
        self._lock = threading.Lock()

    def take(self, key: str, rules: WaitRules) -> Action | None:
        """What a stage with this key made on another machine, now also in the store; None: the
        cache has nothing that can be used. Raises nothing but `Cancelled`."""
        if self._clock() < self._takes_until:
            return None
        action = None
        with self._troubles():
            try:
                action = self._take(key, rules)
                self._is_back(_AWAY)
            except Unfit as error:
                self._is_unfit(key, error)
            except CacheRefuses as error:
                self._takes_until = self._gives_until = math.inf
                self._say("is not used", error)
            except OSError as error:  # of the store; the build finds out whether it can go on
                self._say("is not used for a result", reason(error))
        if action is not None:
            self._there.add(key)
        return action

    def give(self, action: Action, rules: WaitRules) -> None:
        """Put a result into the cache, its record last, unless it is there. Raises nothing but
        `Cancelled`."""
        if action.key in self._there or self._clock() < self._gives_until:
            return
        with self._troubles(giving=True):
            try:
                self._give(action, rules)
                self._is_back(_AWAY, _TAKES_NOTHING)
            except TooLarge:
                pass  # others build it for themselves
            except CacheRefuses as error:
                self._gives_until = math.inf
                self._say("takes nothing from this machine", error)
                return
            except (OSError, ValueError):
                return  # a blob was evicted, or cannot be read
            self._there.add(action.key)

    def _take(self, key: str, rules: WaitRules) -> Action | None:
        record = BytesIO()
        if not self._fetch(f"ac/{key}", record, MOST_RECORD, rules):
            return None
        action = self._action(key, record.getvalue())
        if action.size > free(self._store.root) // 2:
            raise Unfit(f"it has {action.size} bytes, more than half of what the disk has left")
        rules.told("fetching a stage result from the cache")
        with self._store.scratch.borrow("cached") as folder:
            fetched = []
            for number, file in enumerate({file.sha256: file for file in action.files}.values()):
                if self._store.has(file):
                    continue
                path = folder / str(number)
                with path.open("wb") as out:
                    there = self._fetch(f"cas/{file.sha256}", out, file.size, rules)
                if not there:
                    self._damaged.add(key)  # its record has outlived it
                    return None
                if hash_file(path) != (file.sha256, file.size):
                    raise Unfit(f"{file.path} has other bytes than its digest says")
                flush_file(path)
                fetched.append(LocalFile(file, path))
            return self._store.take_in(action, fetched)

    def _action(self, key: str, record: bytes) -> Action:
        """Read a record: a line of JSON, a line with its digest and, if signed, a line with its
        signature."""
        text, _, rest = record.partition(b"\n")
        digest, _, signature = rest.partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != digest:
            raise Unfit("its record is damaged")
        try:
            if self._check is not None and not signature:
                raise ValueError("it is not signed")
            if self._check is not None:
                self._check(signature, text)
            action = from_json(
                parse_json(text), Action, exact=False
            )  # a newer version may say more
            _refuse_unsafe(key, action)
        except (ValueError, MillError, RecursionError) as error:
            raise Unfit(str(error)) from None
        return action

    def _give(self, action: Action, rules: WaitRules) -> None:
        record = f"ac/{action.key}"
        again = action.key in self._damaged
        if not again and self._tried(lambda: self._place.has(record, rules.cancel), rules):
            return
        for file in {file.sha256: file for file in action.files}.values():
            blob = f"cas/{file.sha256}"
            if again or not self._tried(lambda: self._place.has(blob, rules.cancel), rules):  # noqa: B023
                source = self._store.source(file)
                if hash_file(source) != (file.sha256, file.size):
                    raise ValueError(f"blob {file.sha256} holds other bytes")
                self._put(blob, source, rules)
        text = json.dumps(asdict(action), sort_keys=True).encode()
        lines = [text, hashlib.sha256(text).hexdigest().encode()]
        if self._sign is not None:
            lines.append(self._sign(text).strip())
        self._put(record, b"\n".join(lines), rules)
        self._damaged.discard(action.key)

    def _put(self, name: str, source: Path | bytes, rules: WaitRules) -> None:
        self._tried(lambda: self._place.put(name, source, rules.cancel), rules)

    def _fetch(self, name: str, out: BinaryIO, most: int, rules: WaitRules) -> bool:
        def fetch() -> bool:
            out.seek(0)
            out.truncate()
            return self._place.fetch(name, out, most, rules.cancel)

        return self._tried(fetch, rules)

    def _tried(self, ask: Callable[[], T], rules: WaitRules) -> T:
        """Ask again after a moment if that was in vain."""
        for left in reversed(range(TRIES)):
            refuse_if_cancelled(rules.cancel)
            try:
                return ask()
            except CacheTrouble:
                if not left:
                    raise
            (rules.cancel or threading.Event()).wait(PAUSE)
        raise AssertionError("the last try returns or raises")

    @contextmanager
    def _troubles(self, *, giving: bool = False) -> Iterator[None]:
        """A cache that cannot be used is left alone for a while; a full one can still be read."""
        try:
            yield
        except CacheTrouble as error:
            with self._lock:
                until, self._away = self._clock() + self._away, min(2 * self._away, LONGEST_AWAY)
                self._gives_until = max(self._gives_until, until)
                if not giving:
                    self._takes_until = max(self._takes_until, until)
            self._say(_TAKES_NOTHING if giving else _AWAY, error)

    def _is_unfit(self, key: str, error: Unfit) -> None:
        self._damaged.add(key)
        self._unfit += 1
        if self._unfit >= MOST_UNFIT:
            self._takes_until = math.inf
            self._say(f"gives nothing more, {MOST_UNFIT} results were wrong, the last", error)
        else:
            self._say("has a wrong result, which is made here", error)

    def _is_back(self, *news: str) -> None:
        """The cache did what it was asked for, which makes these news old."""
        with self._lock:
            back = self._news in news
            if back:
                self._news, self._away = "", AWAY
        if back:
            self._told("")

    def _say(self, text: str, cause: object) -> None:
        """Tell news once, however often they come."""
        with self._lock:
            news, self._news = self._news != text, text
        if news:
            self._told(f"the cache {self._place.where} {text}: {cause}")


def _refuse_unsafe(key: str, action: Action) -> None:
    """Raise `ValueError` unless a record can be about this key and harms nobody who uses it."""
    if action.key != key or value_digest(action.parts) != key:
        raise ValueError("its record is about another stage")
    if len(action.files) > MOST_FILES:
        raise ValueError(f"it has {len(action.files)} files, more than {MOST_FILES}")
    if problems := path_problems(file.path for file in action.files):
        raise ValueError(problems[0])
    for file in action.files:
        if not SHA256.fullmatch(file.sha256) or not 0 <= file.size < 1 << 53:
            raise ValueError(f"{file.path!r}: not a size and a SHA-256")
    if not 0 <= action.seconds < math.inf or not 0 <= action.peak_memory < 1 << 53:
        raise ValueError("its costs are no numbers")
