"""From settings and a catalog to a plan: everything that is wrong is told at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from flows.plan.planning import plan_of
from flows.settings.resolution import resolve
from matrix.errors import PlanError, UsageError
from matrix.model import Plan
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model

TODAY = date(2026, 6, 9)
BAD = """
[[model]]
id = "typo"
task = "fil-mask"
[[model]]
id = "tiny"
task = "fill-mask"
random = { architecture = "bert" }
"""


def planned(folder: Path, catalog: str = "demo", **flags: Any) -> Plan:
    return plan_of(resolve(flags, {}, folder), catalog, TODAY)


def test_all_errors_come_at_once_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(BAD, encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        planned(tmp_path, "c.toml", feed="s3:x")
    assert [problem.where for problem in caught.value.problems] == [
        "--feed",
        "c.toml: model 1 (typo)",
    ]
    with pytest.raises(PlanError) as caught:
        planned(tmp_path, engine="optimun", feed="s3:x", target=("qnn",))
    engine, feed, target = map(str, caught.value.problems)
    assert engine == "--engine: there is no engine 'optimun' (did you mean optimum?)"
    assert "unknown kind s3: (known: azure:, dir:" in feed
    assert "did you mean qnn_npu or qnn_gpu?" in target
    assert [item.name for item in tmp_path.iterdir()] == ["c.toml"]


def test_measuring_needs_what_is_published_and_a_protocol(tmp_path: Path) -> None:
    flags = {"bench": True, "no_publish": True, "sessions": 5000}
    with pytest.raises(PlanError) as caught:
        plan_of(resolve(flags, {}, tmp_path), "demo", date(2026, 6, 9))
    assert [(one.where, one.message) for one in caught.value.problems] == [
        ("--bench", "--sessions: 5000 is out of range"),
        ("--bench", "only what is published is measured"),
    ]


def test_a_catalog_that_is_not_there_does_not_hide_the_rest(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        planned(tmp_path, "demmo", engine="foo")
    assert [problem.where for problem in caught.value.problems] == ["--engine", "demmo"]
    with pytest.raises(UsageError, match="no catalog is called 'demmo'"):
        planned(tmp_path, "demmo")


def test_bad_entries_are_left_out_on_request_and_told(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(BAD, encoding="utf-8")
    plan = planned(tmp_path, "c.toml", skip_bad_entries=True)
    assert [model.model.id for model in plan.models] == ["tiny"]
    assert any("left out: c.toml: model 1 (typo): unknown task" in note for note in plan.notices)


SHARED = """
[[model]]
id = "tiny-model"
task = "fill-mask"
random = { architecture = "bert" }
[[model]]
id = "tiny/model"
task = "fill-mask"
random = { architecture = "bert" }
"""


def test_what_the_state_knows_as_published_keeps_its_name(
    harness: SweepHarness, tmp_path: Path
) -> None:
    (tmp_path / "c.toml").write_text(SHARED, encoding="utf-8")
    state = str(harness.root / "state.db")
    packages = {one.name: one.export_package for one in planned(tmp_path, "c.toml").models}
    assert packages["tiny-model:fill-mask"] == "modelmill-tiny-model"
    model = small_model()
    cells = tuple(replace(cell, version=f"{cell.version}-fill-mask") for cell in model.cells)
    harness.sweep(make_plan(replace(model, cells=cells)))
    packages = {
        one.name: one.export_package for one in planned(tmp_path, "c.toml", state=state).models
    }
    assert packages["tiny/model:fill-mask"] == "modelmill-tiny-model"
    assert packages["tiny-model:fill-mask"].startswith("modelmill-tiny-model-")
