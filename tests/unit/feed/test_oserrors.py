from __future__ import annotations

import errno
from pathlib import Path

import pytest

from feed.errors import NoSpace, Rejected, Unauthorized, Unavailable, feed_errors, local_errors
from matrix.errors import Exit, MillError, UsageError


def windows(code: int, number: int) -> OSError:
    error = OSError(number, "as Windows says it")
    error.winerror = code  # type: ignore[attr-defined, unused-ignore]  # only Windows has it
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "full"), NoSpace),
        (OSError(errno.EDQUOT, "quota"), NoSpace),
        (windows(112, errno.EINVAL), NoSpace),
        (OSError(errno.EROFS, "read-only"), Unauthorized),
        (PermissionError(errno.EACCES, "denied"), Unauthorized),
        (windows(5, errno.EACCES), Unauthorized),
        (windows(32, errno.EACCES), Unavailable),
        (OSError(errno.ENAMETOOLONG, "long"), Rejected),
        (OSError(errno.ESTALE, "stale"), Unavailable),
        (FileNotFoundError(errno.ENOENT, "gone"), Unavailable),
        (OSError("no number at all"), Unavailable),
    ],
)
def test_the_feeds_disk(error: OSError, kind: type[Exception]) -> None:
    with (
        pytest.raises(MillError, match="here") as caught,
        feed_errors("no", Path("here")),
    ):
        raise error
    assert type(caught.value) is kind


def test_the_readers_disk() -> None:
    with pytest.raises(NoSpace, match="out"), local_errors(Path("out")):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(UsageError, match="cannot write out: denied"), local_errors(Path("out")):
        raise OSError(errno.EACCES, "denied")


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="mine"), feed_errors("no", Path("x")):
        raise ValueError("mine")


def test_a_host_that_may_not_write_cannot_publish() -> None:
    assert Unauthorized("x").exit_code is Exit.HOST_CANNOT_PUBLISH
