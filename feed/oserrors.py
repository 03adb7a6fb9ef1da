"""Errors of the operating system, told in the words of a feed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feed.errors import FeedError, NoSpace, Rejected, Unauthorized, Unavailable
from machine.disk import is_full, reason
from matrix.errors import UsageError

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
