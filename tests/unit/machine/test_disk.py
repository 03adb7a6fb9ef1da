from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from machine.disk import free, is_full, reason, says_full


def windows(code: int, number: int) -> OSError:
    error = OSError(number, "as Windows says it")
    error.winerror = code  # type: ignore[attr-defined, unused-ignore]  # only Windows has it
    return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EDQUOT, "quota"),
        windows(112, errno.EINVAL),
        windows(39, errno.EINVAL),
    ],
)
def test_a_full_disk_or_quota(error: OSError) -> None:
    assert is_full(error)


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "no"), OSError("no number at all")])
def test_other_errors(error: OSError) -> None:
    assert not is_full(error)


@pytest.mark.skipif(sys.platform == "win32", reason="there it is the number of a full disk")
def test_a_host_that_is_down_is_no_full_disk() -> None:
    assert not is_full(OSError(112, "Host is down"))


@pytest.mark.parametrize(
    "text",
    [
        "fwrite: No space left on device",
        "write: Disk quota exceeded",
        "There is not enough space on the disk.",
        "sqlite3.OperationalError: database or disk is full",
    ],
)
def test_programs_say_it_in_words(text: str) -> None:
    assert says_full(f"Traceback:\n{text}\n")
    assert not says_full("the disk is nearly full")


def test_the_reason_of_an_error_is_never_empty() -> None:
    assert reason(OSError(errno.EACCES, "denied")) == "denied"
    assert reason(OSError("plain text")) == "plain text"
    assert reason(OSError()) == "OSError"


def test_a_folder_that_is_still_to_come_has_the_space_of_its_volume(tmp_path: Path) -> None:
    assert free(tmp_path / "not" / "there") > 0
