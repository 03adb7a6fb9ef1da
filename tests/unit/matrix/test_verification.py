"""What a catalog may say about verification, and what is wrong with the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from matrix.errors import Problem
from matrix.model import Overrides
from matrix.policy import overrides_of
from matrix.reader import Entry
from matrix.targets import load_targets
from matrix.verification import Limit, Rules, read_rules, rules_from
from tests.plans.cells import make_model


def read(folder: Path, **verify: Any) -> tuple[dict[str, Any] | None, list[str]]:
    problems: list[Problem] = []
    found = read_rules(Entry({"verify": verify}, "catalog: m", problems), folder)
    return found, [f"{one.where}: {one.message}" for one in problems]


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "more.npz").touch()
    found, problems = read(
        tmp_path,
        parity={"w8a16": {"snr": 15, "reason": "a head nobody reads"}},
        waive={"shapes": "renamed on purpose", "ep": "no NPU"},
        task={"dataset": "more.npz", "metric": "accuracy"},
    )
    assert not problems
    rules = rules_from(found)
    usual = Limit.usual("w8a16")
    assert rules.limit("w8a16") == replace(usual, snr=15, reason="a head nobody reads")
    assert rules.limit("fp32") == Limit.usual("fp32")
    assert rules.waive["ep"] == "no NPU"
    assert rules.task is not None
    assert (rules.task.metric, rules.task.within) == ("accuracy", 0.02)
    assert rules_from(None) == Rules()


@pytest.mark.parametrize(
    ("verify", "text"),
    [
        ({"parity": {"w9": {}}}, "unknown precision 'w9'"),
        ({"parity": {"fp16": {"snr": 20}}}, "needs a reason"),
        ({"parity": {"fp16": {"agreement": 1.5, "reason": "x"}}}, "at most 1"),
        ({"parity": {"fp16": {"snr": True, "reason": "x"}}}, "must be a number"),
        ({"parity": {"fp16": {"snrr": 0.9, "reason": "x"}}}, "unknown key 'snrr'"),
        ({"parity": {"fp16": {"cosine": 0.9, "reason": "x"}}}, "cosine is no longer judged"),
        ({"waive": {"party": "why"}}, "unknown rung 'party'"),
        ({"waive": {"parity": " "}}, "needs a reason"),
        ({"waive": {"parity": True}}, "needs a reason"),
        ({"inputs": "more.npz"}, "inputs are no longer read"),
        ({"task": {"metric": "accuracy"}}, "dataset is missing"),
        ({"task": {"metric": "beauty"}}, "unknown metric 'beauty'"),
        ({"party": 1}, "unknown key 'party'"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, verify: dict[str, Any], text: str) -> None:
    _found, problems = read(tmp_path, **verify)
    assert any(text in problem for problem in problems), problems


def test_a_targets_own_rules_lie_over_its_models() -> None:
    base = {
        "waive": {"shapes": "a", "task": "b"},
        "task": {"dataset": "x.npz", "metric": "accuracy"},
    }
    model = replace(
        make_model(),
        overrides=Overrides(verify=base),
        per_target={"*_npu": Overrides(verify={"waive": {"shapes": "c"}})},
    )
    targets = load_targets(None)
    npu = overrides_of(model, targets.get("qnn_npu")).verify
    assert npu == {
        "waive": {"shapes": "c", "task": "b"},
        "task": {"dataset": "x.npz", "metric": "accuracy"},
    }
    assert overrides_of(model, targets.get("mlas_cpu")).verify == base


def test_a_doubled_output_is_beyond_every_default() -> None:
    for precision in ("fp32", "fp16", "w8a16", "w8a8", "w8", "w4", "w4a16"):
        assert Limit.usual(precision).ratio < 0.4
