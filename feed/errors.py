"""What can go wrong with a feed, typed: the publisher decides by class, never by text."""

from __future__ import annotations

from matrix.errors import Exit, MillError


class FeedError(MillError):
    """Something about a feed."""

    exit_code = Exit.UNUSABLE


class VersionExists(FeedError):
    """The version is there already; whose content it is must be compared."""


class OutcomeUnknown(FeedError):
    """The publish timed out or its reply was lost: it may have been committed."""


class Unavailable(FeedError):
    """Transient: the same call may succeed later."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class NoSpace(Unavailable):
    """The disk of the feed is full: worth trying again only after somebody has made room."""


class TimeLimit(Unavailable):
    """A publish took longer than its limit."""


class Outage(FeedError):
    """The feed is away, not just one call: no other package would fare better now."""


class Unauthorized(FeedError):
    """This host cannot use the feed at all: no later cell would fare better."""

    exit_code = Exit.HOST_CANNOT_PUBLISH


class NotFound(FeedError):
    """No such feed, package or version."""


class Rejected(FeedError):
    """The feed will never take this: a bad name or version, a quota, a forbidden file."""


class Conflict(FeedError):
    """The version exists with other content; local bytes are kept, the feed's are not touched."""


class Corrupt(FeedError):
    """Bytes are not what their digest says, in the feed or in what was to be sent."""


class UnsafePath(FeedError):
    """A file name that would leave the folder it belongs in."""


class Cancelled(FeedError):
    """The caller asked to stop: nothing is recorded, a later publish settles what became of it."""

    exit_code = Exit.INTERRUPTED
