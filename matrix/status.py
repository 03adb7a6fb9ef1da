"""The statuses of cells and the classes of failures, as the state stores them."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How far a cell of a sweep has come."""

    PLANNED = "planned"
    BUILDING = "building"
    BUILT = "built"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    BUILD_FAILED = "build_failed"
    BUILD_TIMEOUT = "build_timeout"
    VERIFY_FAILED = "verify_failed"
    PUBLISH_FAILED = "publish_failed"
    CONFLICT = "conflict"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def done(self) -> bool:
        """Good and final: a resume has nothing left to do for this cell."""
        return self in DONE

    @property
    def failed(self) -> bool:
        """Bad and final: counts against the exit code until `retry` asks for it again."""
        return self in FAILED

    @property
    def open(self) -> bool:
        """Neither: a resume continues it."""
        return not (self.done or self.failed)

    def unfinished(self, *, publish: bool) -> bool:
        """Whether a run goes on with it; one that publishes, also with what is verified."""
        return self.open or (publish and self is Status.VERIFIED)


DONE = frozenset({Status.PUBLISHED, Status.UNCHANGED, Status.SKIPPED, Status.VERIFIED})
"""`verified` is final only for a sweep that does not publish: see `Status.unfinished`."""

FAILED = frozenset(
    {
        Status.BUILD_FAILED,
        Status.BUILD_TIMEOUT,
        Status.VERIFY_FAILED,
        Status.PUBLISH_FAILED,
        Status.CONFLICT,
        Status.UNSUPPORTED,
    }
)


class FailureClass(StrEnum):
    """What kind of thing went wrong; reported by the stage itself, not guessed from text."""

    EXPORT = "EXPORT"
    OPTIMIZE = "OPTIMIZE"
    QUANTIZE = "QUANTIZE"
    COMPILE = "COMPILE"
    VERIFY = "VERIFY"
    PUBLISH = "PUBLISH"
    TIMEOUT = "TIMEOUT"
    MEMORY = "MEMORY"
    DISK = "DISK"
    NETWORK = "NETWORK"
    AUTH = "AUTH"
    CRASH = "CRASH"
    UNSUPPORTED = "UNSUPPORTED"
    UNKNOWN = "UNKNOWN"

    @property
    def retries_itself(self) -> bool:
        """Whether it is retried without being asked: only infrastructure may recover."""
        return self in {FailureClass.NETWORK, FailureClass.DISK}

    @property
    def may_pass(self) -> bool:
        """The cause lies outside the build (a missing tool, a disk, the network, a login), so
        every new run of a sweep tries such cells again."""
        return self in {
            FailureClass.UNSUPPORTED,
            FailureClass.DISK,
            FailureClass.NETWORK,
            FailureClass.AUTH,
        }
