"""Exit codes and statuses are a contract: automation and the database depend on each of them."""

from __future__ import annotations

import pytest

from matrix.errors import Exit, MillError, NothingSelected, PlanError, Problem, UsageError
from matrix.status import DONE, FAILED, FailureClass, Status


def test_exit_codes_are_the_documented_ones() -> None:
    assert {item.name: item.value for item in Exit} == {
        "OK": 0,
        "CELLS_FAILED": 1,
        "USAGE": 2,
        "HOST_CANNOT_PUBLISH": 3,
        "NOTHING_SELECTED": 4,
        "UNUSABLE": 5,
        "REJECTED": 6,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), Exit.USAGE),
        (PlanError([Problem("a", "b")]), Exit.USAGE),
        (NothingSelected("x"), Exit.NOTHING_SELECTED),
    ],
)
def test_errors_know_their_exit_code(error: MillError, code: Exit) -> None:
    assert error.exit_code is code


def test_an_error_is_one_line_with_its_hint() -> None:
    assert str(UsageError("no such thing", hint="try that")) == "no such thing (try that)"
    assert str(UsageError("no such thing")) == "no such thing"


def test_a_plan_error_tells_every_problem() -> None:
    error = PlanError([Problem("a.toml", "is odd", "mend it"), Problem("b.toml", "is worse")])
    assert str(error).splitlines() == [
        "2 problems in the plan:",
        "  a.toml: is odd (mend it)",
        "  b.toml: is worse",
    ]


def test_statuses_are_the_documented_ones() -> None:
    assert [str(item) for item in Status] == [
        "planned",
        "building",
        "built",
        "verifying",
        "verified",
        "publishing",
        "published",
        "unchanged",
        "build_failed",
        "build_timeout",
        "verify_failed",
        "publish_failed",
        "conflict",
        "unsupported",
        "skipped",
        "cancelled",
    ]


@pytest.mark.parametrize("status", list(Status))
def test_every_status_is_exactly_one_of_done_failed_open(status: Status) -> None:
    assert [status.done, status.failed, status.open].count(True) == 1


def test_what_is_interrupted_is_open_so_that_a_resume_takes_it_up() -> None:
    assert not DONE & FAILED
    for status in (Status.CANCELLED, Status.BUILDING, Status.BUILT, Status.PUBLISHING):
        assert status.open


def test_only_infrastructure_retries_by_itself() -> None:
    assert {item for item in FailureClass if item.retries_itself} == {
        FailureClass.NETWORK,
        FailureClass.DISK,
    }
