"""Errors of feeds. The publisher decides by their class, never by their text."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from machine.disk import is_full, reason
from matrix.errors import Exit, MillError, UsageError


class FeedError(MillError):
    """The base of all errors of feeds."""

    exit_code = Exit.UNUSABLE


class VersionExists(FeedError):
    """The version exists; comparing digests shows whether its content is ours."""


class OutcomeUnknown(FeedError):
    """The publish timed out or its reply was lost: it may have been committed."""


class Unavailable(FeedError):
    """Transient: the same call may succeed later."""

    lasts: bool = False
    """Whether the feed has tried again itself, for as long as that makes sense."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class NoSpace(Unavailable):
    """The feed's disk is full: trying again helps only after somebody frees space."""


class TimeLimit(Unavailable):
    """A publish took longer than its limit."""


class Outage(FeedError):
    """The feed is unavailable, not just one call: no other package can be published now."""


class Unauthorized(FeedError):
    """This host cannot use the feed: no other cell can be published either."""

    exit_code = Exit.HOST_CANNOT_PUBLISH


class NotFound(FeedError):
    """No such feed, package or version."""


class Rejected(FeedError):
    """The feed will never accept this: a bad name or version, a quota, a forbidden file."""


class Conflict(FeedError):
    """The version exists with other content. Local files are kept; the feed is left as it is."""


class Corrupt(FeedError):
    """Content does not match its digest, in the feed or on this machine."""


class UnsafePath(FeedError):
    """A file name that points outside its folder."""


class Cancelled(FeedError):
    """The caller stopped the publish. Nothing is recorded; the next publish asks the feed."""

    exit_code = Exit.INTERRUPTED


PULL_AGAIN = "pull again; a version that stays damaged must be built under a new stamp"

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_IN_USE_WINDOWS = {32, 33}
"""Another process has the file open: denied for the moment only."""
_AGAIN = "then run the same command again: what is built is kept"
_IMPOSSIBLE = {errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG}


@contextmanager
def feed_errors(doing: str, where: Path) -> Iterator[None]:
    """Turn an `OSError` on the feed's own disk into the typed error the publisher decides by."""
    try:
        yield
    except OSError as error:
        raise _for_feed(error, doing, where) from error


def _for_feed(error: OSError, doing: str, where: Path) -> FeedError:
    text = f"{doing} in {where}: {reason(error)}"
    if is_full(error):
        return NoSpace(f"the disk of the feed {where} is full", hint=f"free space, {_AGAIN}")
    if error.errno in _DENIED and getattr(error, "winerror", 0) not in _IN_USE_WINDOWS:
        return Unauthorized(text, hint=f"give this user write access, {_AGAIN}")
    if error.errno in _IMPOSSIBLE:
        return Rejected(text)
    return Unavailable(text)


@contextmanager
def local_errors(dest: Path) -> Iterator[None]:
    """Turn an `OSError` on the reader's disk into one line for its user."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise NoSpace(
                f"the disk of {dest} is full", hint="free space and pull again"
            ) from error
        raise UsageError(f"cannot write {dest}: {reason(error)}") from error
