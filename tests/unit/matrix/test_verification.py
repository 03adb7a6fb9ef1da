"""What a catalog may say about verification, and what is wrong with the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrix.errors import Problem
from matrix.model import Overrides
from matrix.policy import overrides_of
from matrix.reader import Entry
from matrix.targets import load_targets
from matrix.verification import Rules, Threshold, read_rules, rules_from
from tests.plans.cells import make_model


def read(folder: Path, **verify: Any) -> tuple[dict[str, Any] | None, list[str]]:
    problems: list[Problem] = []
    found = read_rules(Entry({"verify": verify}, "catalog: m", problems), folder)
    return found, [f"{one.where}: {one.message}" for one in problems]


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "more.npz").touch()
    found, problems = read(
        tmp_path,
        parity={"w8a16": {"cosine": 0.93, "reason": "two outputs near zero"}},
        waive={"shapes": "renamed on purpose", "ep": "no NPU"},
        inputs="more.npz",
        task={"dataset": "more.npz", "metric": "accuracy"},
    )
    assert not problems
    rules = rules_from(found)
    assert rules.threshold("w8a16") == Threshold(0.93, None, "two outputs near zero")
    assert rules.threshold("fp32").cosine == 0.9999
    assert rules.waive["ep"] == "no NPU"
    assert rules.task is not None
    assert (rules.task.metric, rules.task.within) == ("accuracy", 0.02)
    assert rules.inputs == str(tmp_path / "more.npz")
    assert rules_from(None) == Rules()


@pytest.mark.parametrize(
    ("verify", "text"),
    [
        ({"parity": {"w9": {}}}, "unknown precision 'w9'"),
        ({"parity": {"fp16": {"cosine": 0.9}}}, "needs a reason"),
        ({"parity": {"fp16": {"cosine": 1.5, "reason": "x"}}}, "at most 1"),
        ({"parity": {"fp16": {"cosine": True, "reason": "x"}}}, "must be a number"),
        ({"parity": {"fp16": {"cosin": 0.9, "reason": "x"}}}, "unknown key 'cosin'"),
        ({"waive": {"party": "why"}}, "unknown rung 'party'"),
        ({"waive": {"parity": " "}}, "needs a reason"),
        ({"waive": {"parity": True}}, "needs a reason"),
        ({"inputs": "absent.npz"}, "does not exist"),
        ({"task": {"metric": "accuracy"}}, "dataset is missing"),
        ({"task": {"metric": "beauty"}}, "unknown metric 'beauty'"),
        ({"party": 1}, "unknown key 'party'"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, verify: dict[str, Any], text: str) -> None:
    _found, problems = read(tmp_path, **verify)
    assert any(text in problem for problem in problems), problems


def test_a_targets_own_rules_lie_over_its_models() -> None:
    from dataclasses import replace

    base = {"waive": {"shapes": "a", "task": "b"}, "inputs": "x.npz"}
    model = replace(
        make_model(),
        overrides=Overrides(verify=base),
        per_target={"*_npu": Overrides(verify={"waive": {"shapes": "c"}})},
    )
    targets = load_targets(None)
    npu = overrides_of(model, targets.get("qnn_npu")).verify
    assert npu == {"waive": {"shapes": "c", "task": "b"}, "inputs": "x.npz"}
    assert overrides_of(model, targets.get("mlas_cpu")).verify == base


def test_a_doubled_output_is_beyond_every_default() -> None:
    for precision in ("fp32", "fp16", "w8a16", "w8a8", "w8"):
        assert Rules().threshold(precision).error < 0.7
