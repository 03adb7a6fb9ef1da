from __future__ import annotations

import pytest

from matrix.status import FailureClass
from workers.errors import BuildFailed, KnownFailures


def failed(failure: FailureClass = FailureClass.EXPORT, *, retryable: bool = False) -> BuildFailed:
    return BuildFailed(failure, "export", "no such operator", hint="h", retryable=retryable)


def test_a_failure_for_good_is_raised_again_with_the_cell_it_came_from() -> None:
    known = KnownFailures()
    known.check("k")
    known.note("k", "m@qnn_npu", failed())
    known.check("other")
    with pytest.raises(BuildFailed, match=r"no such operator.*m@qnn_npu") as caught:
        known.check("k")
    assert (caught.value.failure, caught.value.hint) == (FailureClass.EXPORT, "h")


def test_what_may_be_the_moments_fault_is_believed_the_second_time() -> None:
    known = KnownFailures()
    known.note("k", "a", failed(FailureClass.CRASH))
    known.check("k")
    known.note("k", "b", failed(FailureClass.CRASH))
    with pytest.raises(BuildFailed):
        known.check("k")


def test_what_asks_for_another_try_is_not_kept() -> None:
    known = KnownFailures()
    known.note("k", "a", failed(FailureClass.NETWORK))
    known.note("k", "a", failed(retryable=True))
    known.check("k")
