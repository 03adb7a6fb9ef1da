"""A failure's class comes from its exception, never from its words."""

from __future__ import annotations

import errno

import pytest

from matrix.status import FailureClass
from workers.engine import StageError
from workers.sources.errors import one_line
from workers.winml_engine.config import failing_as


def raised(error: BaseException) -> StageError:
    with (
        pytest.raises(StageError) as caught,
        failing_as(FailureClass.EXPORT, "the export failed", "try"),
    ):
        raise error
    return caught.value


class SaveError(OSError):
    """Like winml-cli's: a message, an error number set afterwards, and a flag."""

    disk_full = True


def test_an_unknown_exception_fails_its_stage_in_one_line() -> None:
    found = raised(AttributeError("no attribute\n  n_positions   in\nthe config"))
    assert str(found) == "the export failed: AttributeError: no attribute n_positions in the config"
    assert (found.failure, found.hint) == ("EXPORT", "try")


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "whatever"), OSError(errno.EDQUOT, "quota"), SaveError("insufficient")],
)
def test_a_full_disk_is_told_by_its_number_or_flag(error: OSError) -> None:
    found = raised(error)
    assert found.failure == "DISK"
    assert str(found) == "the export failed: the disk is full"


def test_words_about_a_disk_prove_nothing() -> None:
    assert raised(RuntimeError("no space left on device")).failure == "EXPORT"
    assert raised(OSError(errno.EACCES, "connection refused")).failure == "EXPORT"


def test_a_missing_package_is_a_broken_environment() -> None:
    found = raised(ModuleNotFoundError("No module named 'optimum'"))
    assert found.failure == "UNSUPPORTED"
    assert "modelmill engine install winml" in found.hint


def test_what_is_understood_already_passes() -> None:
    known = StageError("known", failure="NETWORK", retryable=True)
    assert raised(known) is known
    with pytest.raises(MemoryError), failing_as(FailureClass.EXPORT, "x"):
        raise MemoryError


def test_a_stop_is_no_failure() -> None:
    with pytest.raises(KeyboardInterrupt), failing_as(FailureClass.EXPORT, "x"):
        raise KeyboardInterrupt


def test_a_long_text_is_cut() -> None:
    assert len(one_line(ValueError("x" * 1000))) == 600
    assert one_line(ValueError()) == "ValueError"
