"""Errors of feeds. The publisher decides by their class, never by their text."""

from __future__ import annotations

from matrix.errors import Exit, MillError


class FeedError(MillError):
    """The base of all errors of feeds."""

    exit_code = Exit.UNUSABLE


class VersionExists(FeedError):
    """The version exists; comparing digests shows whether its content is ours."""


class OutcomeUnknown(FeedError):
    """The publish timed out or its reply was lost: it may have been committed."""


class Unavailable(FeedError):
    """Transient: the same call may succeed later."""

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
