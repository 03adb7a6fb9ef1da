from __future__ import annotations

import json
from typing import Any

from flows.observe.evidence import level_of
from flows.report.grid import known, pass_rates
from flows.report.page import render
from tests.states.reported import reported
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


def view(row: int, column: int, status: str, level: str | None = None) -> dict[str, Any]:
    return known(row=row, column=column, id=f"m{row}:t@c{column}", status=status, level=level)


def test_rates_are_of_what_ended_by_priority_and_target() -> None:
    rows = [{"name": f"m{n}:t", "priority": f"P{n}"} for n in range(2)]
    cells = [
        view(0, 1, "published", "parity"),
        view(0, 2, "verify_failed", "shapes"),
        view(1, 1, "unchanged", "loads"),
        view(1, 2, "planned"),
        view(1, 3, "skipped"),
        view(0, 0, "published") | {"id": "m0:t@export"},
    ]
    rates = {(one.get("priority"), one.get("column")): one for one in pass_rates(cells, rows)}
    shares = {key: (one["passed"], one["ended"], one.get("level")) for key, one in rates.items()}
    assert shares == {
        (None, None): (2, 3, "loads"),
        (None, 1): (2, 2, "loads"),
        (None, 2): (0, 1, None),
        ("P0", None): (1, 2, "parity"),
        ("P0", 1): (1, 1, "parity"),
        ("P0", 2): (0, 1, None),
        ("P1", None): (1, 1, "loads"),
        ("P1", 1): (1, 1, "loads"),
    }


def test_a_level_needs_all_rungs_below_it() -> None:
    rungs = [
        {"name": "integrity", "passed": True},
        {"name": "policy", "passed": False, "waived": "known"},
        {"name": "loads", "passed": True},
        {"name": "shapes", "passed": False},
        {"name": "parity", "passed": True},
    ]
    assert level_of(rungs) == "loads"
    assert level_of([]) is None


def test_the_page_holds_causes_and_rates(harness: SweepHarness) -> None:
    bad = small_model("b/bad", act={"export": "fail:EXPORT"})
    harness.sweep(make_plan(small_model("a/good"), bad))
    info = harness.state.find_sweep()
    assert info is not None
    made = reported(harness.state, info)
    document = json.loads(json.dumps(made))
    (cause,) = document["failures"]
    assert {made["cells"][place]["status"] for place in cause["cells"]} == {"build_failed"}
    assert (len(cause["cells"]), len(cause["exports"]), cause["models"]) == (3, 1, 1)
    (total,) = [one for one in document["rates"] if "priority" not in one and "column" not in one]
    assert (total["passed"], total["ended"]) == (3, 6)
    assert "for example" not in cause["text"]
    assert render(made)
