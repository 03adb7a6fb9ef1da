from __future__ import annotations

import re

from flows.output.quantity import counted, show_moment
from flows.plan.planning import MOST_NOTICES, notice_lines, size_of
from matrix.errors import MOST_PROBLEMS, PlanError, Problem
from tests.sweeps.in_memory import make_plan, small_model


def test_one_is_not_written_as_many() -> None:
    assert (counted(0, "cell"), counted(1, "cell"), counted(2, "cell")) == (
        "0 cells",
        "1 cell",
        "2 cells",
    )
    assert size_of(make_plan(small_model(cells=1))) == "1 cell of 1 model"
    assert size_of(make_plan(small_model("a/b"), small_model("c/d"))) == "6 cells of 2 models"


def test_a_moment_has_its_zone() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", show_moment(1.0))


def test_long_lists_of_problems_are_cut_and_counted() -> None:
    many = [Problem(f"entry {n}", "is bad") for n in range(40_000)]
    lines = str(PlanError(many)).splitlines()
    assert lines[0] == "40000 problems in the plan:"
    assert len(lines) == 1 + MOST_PROBLEMS + 1
    assert lines[-1] == f"  ... and {40_000 - MOST_PROBLEMS} more"
    assert PlanError(many).problems == tuple(many)
    assert "more" not in str(PlanError(many[:MOST_PROBLEMS]))


def test_long_lists_of_notices_are_cut() -> None:
    lines = list(notice_lines([f"left out {n}" for n in range(MOST_NOTICES + 5)]))
    assert len(lines) == MOST_NOTICES + 1
    assert lines[-1] == "note: ... and 5 more: modelmill plan CATALOG --json has all"
