"""Findings: what their evidence amounts to, where they hold, and files with faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrix.errors import PlanError
from matrix.findings import Evidence, Finding, Reach, merged, read_findings, shipped


def seen(model: str = "a", architecture: str = "resnet", **more: Any) -> Evidence:
    values: dict[str, Any] = {
        "supports": True,
        "target": "mlas_cpu",
        "device": "some CPU",
        "protocol": "interleaved",
        "gain": 8.0,
        "low": 6.0,
        "high": 10.0,
        "floor": 2.0,
    }
    return Evidence(model=model, architecture=architecture, **(values | more))


def finding(*evidence: Evidence, **more: Any) -> Finding:
    values: dict[str, Any] = {
        "id": "one",
        "kind": "tuning",
        "title": "t",
        "observation": "o",
        "status": "draft",
        "confidence": "low",
        "falsified_by": "f",
        "action": "skip",
        "settings": ("opset=21",),
    }
    return Finding(**(values | more), evidence=evidence)


@pytest.mark.parametrize(
    ("evidence", "level"),
    [
        ([], 0),
        ([seen(gain=4.9, low=4.8, high=5.0)], 0),
        ([seen(gain=None)], 0),
        ([seen(emulated=True)], 0),
        ([seen(supports=False)], 0),
        ([seen(protocol="sequential")], 1),
        ([seen(protocol="single", low=None, high=None)], 1),
        ([seen(low=1.9)], 1),
        ([seen(low=-1.0)], 1),
        ([seen()], 2),
        ([seen(gain=-8.0, low=-10.0, high=-6.0)], 2),
        ([seen(), seen()], 2),
        ([seen(), seen("b", "vit")], 2),
        ([seen(), seen("b")], 3),
        ([seen(), seen("b", protocol="sequential")], 2),
        ([seen(), seen("b", "vit"), seen("c", "bert")], 4),
        ([seen(architecture="unknown"), seen("b", "unknown")], 2),
        ([seen(), seen("b", "vit"), seen("c", "unknown")], 2),
    ],
)
def test_the_level_follows_from_the_evidence(evidence: list[Evidence], level: int) -> None:
    assert finding(*evidence).level == level


NONE: dict[str, Any] = {"gain": 0.4, "low": -1.5, "high": 2.0}


@pytest.mark.parametrize(
    ("evidence", "level"),
    [
        ([], 0),
        ([seen()], 0),
        ([seen(**NONE, emulated=True)], 0),
        ([seen(**NONE, supports=False)], 0),
        ([seen(**NONE, protocol="sequential")], 1),
        ([seen(gain=0.4, low=-5.5, high=6.0)], 1),
        ([seen(gain=0.4, low=None, high=None)], 1),
        ([seen(**NONE)], 2),
        ([seen(**NONE), seen("b", **NONE)], 3),
        ([seen(**NONE), seen("b", "vit", **NONE), seen("c", "bert", **NONE)], 4),
    ],
)
def test_that_something_changes_nothing_has_to_be_measured_too(
    evidence: list[Evidence], level: int
) -> None:
    one = finding(*evidence, effect="none")
    assert one.level == level
    assert one.prunes is (level >= 3)


@pytest.mark.parametrize(
    ("right", "wrong", "level"), [(57, 2, 4), (58, 2, 5), (57, 3, 4), (0, 0, 4), (96, 4, 5)]
)
def test_the_highest_level_needs_predictions_that_come_true(
    right: int, wrong: int, level: int
) -> None:
    evidence = [seen(), seen("b", "vit"), seen("c", "bert")]
    evidence += [seen(predicted=True)] * right + [seen(predicted=True, supports=False)] * wrong
    assert finding(*evidence).level == level


def test_only_what_was_repeated_leaves_hypotheses_out() -> None:
    repeated = [seen(), seen("b")]
    assert finding(*repeated).prunes
    assert not finding(seen()).prunes
    assert not finding(*repeated, action="last").prunes
    assert not finding(*repeated, status="refuted").prunes
    assert not finding(*repeated, kind="family").prunes


def test_a_contradiction_counts_within_the_scope_and_on_a_device() -> None:
    repeated = [seen(), seen("b")]
    scope = Reach(targets=("mlas_cpu",), not_for=("vit",))
    against = seen("c", supports=False)
    assert not finding(*repeated, against, scope=scope).prunes
    assert finding(*repeated, seen("c", supports=False, emulated=True), scope=scope).prunes
    assert finding(*repeated, seen("c", "vit", supports=False), scope=scope).prunes
    assert finding(*repeated, seen("c", supports=False, target="qnn_npu"), scope=scope).prunes


def test_where_a_finding_holds() -> None:
    reach = Reach(
        targets=("qnn_*",), architectures=("dinov2*",), not_for=("facebook/dinov2-giant",)
    )
    here = {"target": "qnn_npu", "architecture": "dinov2"}
    assert reach.holds(**here, model="facebook/dinov2-base")
    assert not reach.holds(**here, model="facebook/dinov2-giant")
    assert not reach.holds(target="mlas_cpu", architecture="dinov2", model="x")
    assert not reach.holds(target="qnn_npu", architecture="vit", model="x")
    assert Reach().holds(architecture="any", model="any")


def test_the_shipped_findings_claim_no_more_than_was_measured() -> None:
    found = read_findings(shipped())
    assert len(found) > 30
    # All of it was measured on one device with sequential baselines.
    assert max(one.level for one in found.values()) == 1
    assert not [one.id for one in found.values() if one.prunes]
    assert found["npu-001"].status == "draft"
    assert found["npu-001"].devices == ("Snapdragon X Elite",)
    assert found["gpu-006"].status == "refuted"
    for one in found.values():
        assert one.kind != "tuning" or one.scope.targets, one.id


def test_evidence_is_added_to_the_finding_that_it_names() -> None:
    more = merged({"one": finding(seen())}, [("one", seen("b")), ("other", seen("c"))])
    assert more["one"].level == 3
    assert list(more) == ["one"]


GOOD = """
[[finding]]
id = "x"
kind = "tuning"
title = "t"
observation = "o"
status = "draft"
confidence = "low"
falsified_by = "f"
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[finding]]\n", "id is missing"),
        (GOOD.replace("draft", "proven"), "unknown status 'proven'"),
        (GOOD + 'colour = "red"', "unknown key 'colour'"),
        (GOOD + 'action = "skip"', "action skip needs settings"),
        (GOOD + 'effect = "none"', "effect none needs settings"),
        (GOOD + 'effect = "nothing"', "unknown effect 'nothing'"),
        (
            GOOD + 'effect = "none"\naction = "first"\nsettings = ["opset=21"]',
            "what changes nothing is not tried first",
        ),
        (GOOD + 'settings = ["opset"]', "settings: 'opset' is not AXIS=VALUE"),
        (GOOD + 'settings = ["passes=gelu"]', "is not AXIS=VALUE (did you mean pass"),
        (GOOD + 'settings = ["pass={a"]', "settings: 'pass={a' has an unmatched brace"),
        (GOOD + "[finding.scope]\nmodels = ['}']", "models: '}' has an unmatched brace"),
        (GOOD + "mechanism_confirmed = true", "mechanism is empty"),
        (GOOD + 'mechanism_confirmed = "partial"', "must be true or false, not 'partial'"),
        (GOOD + 'goal = "L1"', "a finding of the kind tuning has no effort and no goal"),
        (GOOD + 'goal = "L7"', "unknown goal 'L7'"),
        (GOOD + 'effort = "none"', "unknown effort 'none'"),
        (GOOD + GOOD, "id 'x' is taken by own.toml"),
        (GOOD + '[[finding.evidence]]\nmodel = "m"\narchitecture = "a"', "supports is missing"),
        (
            GOOD + "[[finding.evidence]]\nsupports = true\nmodel = 'm'\narchitecture = 'a'\n"
            "low = 2\nhigh = 1",
            "low 2 is above high 1",
        ),
        (GOOD + "scope = 3", "scope must be a table, not 3"),
        (GOOD + "[finding.scope]\ntarget = 'x'", "unknown key 'target'"),
        (GOOD + "evidence = 3", "must be a list of tables"),
        ("finding = 3", "must be a list of tables"),
        ("findings = 3", "unknown key 'findings'"),
        ("[[", "is not valid TOML"),
    ],
)
def test_a_fault_is_told_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_findings([path])
    assert problem in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_all_faults_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[[")
    (tmp_path / "b.toml").write_text("[[finding]]\n")
    with pytest.raises(PlanError) as caught:
        read_findings([tmp_path / "a.toml", tmp_path / "b.toml", tmp_path / "c.toml"])
    files = {one.where.partition(":")[0] for one in caught.value.problems}
    assert files == {"a.toml", "b.toml", "c.toml"}
