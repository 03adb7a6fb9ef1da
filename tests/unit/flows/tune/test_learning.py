"""What a tuning adds to the knowledge base."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.tune.conclusion import DRAFTS, Observation, learn, observations
from flows.tune.knowledge import EVIDENCE, load_knowledge
from matrix.findings import Evidence
from matrix.trials import Verdict
from tests.tunings.fakes import Play

FINDING = """
[[finding]]
id = "ours-1"
kind = "tuning"
title = "Our pass is faster"
observation = "so it seemed"
status = "draft"
confidence = "low"
falsified_by = "an interval that holds 0"
action = "ACTION"
settings = ["pass=ours"]
scope = { targets = ["mlas_cpu"], architectures = ["bert"] }
"""


def observation(
    verdict: Verdict = Verdict.BETTER, digest: str = "a", gain: float = 12.0, **values: str
) -> Observation:
    about: Any = {"model": "our/model", "architecture": "bert", "target": "mlas_cpu", **values}
    evidence = Evidence(
        supports=True, protocol="interleaved", gain=gain, low=gain - 2, high=gain + 2, floor=1.0,
        digest=digest, device="a box", at="2026-06-09", **about,
    )  # fmt: skip
    return Observation(
        title="Our pass", settings=("pass=ours",), verdict=verdict, evidence=evidence
    )


def known(folder: Path, action: str = "first") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "ours.toml").write_text(FINDING.replace("ACTION", action))
    return folder


@pytest.mark.parametrize("action", ["skip", "note"])
@pytest.mark.parametrize(
    ("verdict", "supports"),
    [(Verdict.NO_DIFFERENCE, True), (Verdict.WORSE, False), (Verdict.BETTER, False)],
)
def test_no_difference_speaks_for_what_is_said_to_change_nothing(
    tmp_path: Path, action: str, verdict: Verdict, supports: bool
) -> None:
    folder = known(tmp_path / "own", f'{action}"\neffect = "none')
    learn(folder, [observation(verdict, gain=0.5)])
    (evidence,) = load_knowledge(folder).get("ours-1").evidence
    assert evidence.supports is supports


@pytest.mark.parametrize(
    ("action", "verdict", "supports"),
    [
        ("first", Verdict.BETTER, True),
        ("first", Verdict.NO_DIFFERENCE, False),
        ("first", Verdict.WORSE, False),
        ("skip", Verdict.WORSE, True),
        ("skip", Verdict.BETTER, False),
        ("last", Verdict.NO_DIFFERENCE, False),
    ],
)
def test_a_trial_speaks_for_or_against_the_finding_that_names_its_setting(
    tmp_path: Path, action: str, verdict: Verdict, supports: bool
) -> None:
    folder = known(tmp_path / "k", action)
    learn(folder, [observation(verdict)])
    (evidence,) = load_knowledge(folder).get("ours-1").evidence
    assert evidence.supports is supports
    assert evidence.gain == 12.0
    assert not load_knowledge(folder).problems


def test_a_contradiction_stays_beside_what_spoke_for_the_finding(tmp_path: Path) -> None:
    folder = known(tmp_path / "k")
    learn(folder, [observation()])
    learn(folder, [observation(Verdict.WORSE, "b", -9.0)])
    told = load_knowledge(folder).get("ours-1").evidence
    assert [one.supports for one in told] == [True, False]


def test_nothing_is_learned_twice(tmp_path: Path) -> None:
    folder = known(tmp_path / "k")
    assert learn(folder, [observation()]) == (1, 0)
    assert learn(folder, [observation()]) == (0, 0)
    assert len((folder / EVIDENCE).read_text().splitlines()) == 1


def test_other_targets_and_architectures_are_not_spoken_about(tmp_path: Path) -> None:
    folder = known(tmp_path / "k")
    seen = [observation(Verdict.NO_DIFFERENCE, target="qnn_npu"),
            observation(Verdict.NO_DIFFERENCE, architecture="vit")]  # fmt: skip
    learn(folder, seen)
    assert load_knowledge(folder).get("ours-1").evidence == ()


def test_a_gain_that_no_finding_knows_becomes_a_draft_with_its_evidence(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    assert learn(folder, [observation(architecture="no_such_net")]) == (1, 1)
    again = observation(digest="b", architecture="no_such_net")
    assert learn(folder, [again]) == (1, 0)
    found = [one for one in load_knowledge(folder).findings.values() if one.file == DRAFTS]
    (draft,) = found
    assert (draft.status, draft.action, draft.settings) == ("draft", "first", ("pass=ours",))
    assert (draft.level, len(draft.evidence)) == (2, 2)


def test_times_of_an_emulator_are_no_draft(tmp_path: Path, stage: Play) -> None:
    one = stage({19: 0.8})
    found = one.played()
    (seen,) = observations(found, "a box")
    assert (seen.verdict, seen.settings, seen.evidence.target) == (
        Verdict.BETTER, ("opset=19",), "mlas_cpu",
    )  # fmt: skip
    assert seen.evidence.proves("change")
    emulated = Observation(
        title=seen.title, settings=seen.settings, verdict=seen.verdict,
        evidence=Evidence(supports=True, model="m", architecture="x", gain=30.0, emulated=True),
    )  # fmt: skip
    assert learn(tmp_path / "k", [emulated])[1] == 0


def test_lines_after_a_line_without_an_end_stay_lines(tmp_path: Path) -> None:
    folder = known(tmp_path / "k")
    line = {"finding": "ours-1", "supports": False, "model": "m", "architecture": "bert"}
    (folder / EVIDENCE).write_text(json.dumps(line))
    learn(folder, [observation()])
    assert len(load_knowledge(folder).get("ours-1").evidence) == 2


def test_the_same_measurement_twice_in_one_file_is_learned_once(tmp_path: Path) -> None:
    folder = known(tmp_path / "k")
    assert learn(folder, [observation(), observation()]) == (1, 0)


def test_one_gain_of_two_models_is_one_draft(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    seen = [
        observation(digest=name, architecture="no_such_net", model=f"our/{name}") for name in "ab"
    ]
    assert learn(folder, seen) == (2, 1)
    (draft,) = [one for one in load_knowledge(folder).findings.values() if one.file == DRAFTS]
    assert [one.model for one in draft.evidence] == ["our/a", "our/b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": ("pass=[a",)},
        {"settings": ("pass={a",)},
        {"settings": ("pass=*",)},
        {"settings": ("speed=high",)},
        {"settings": ("pass=\ud800",)},
        {"architecture": "unknown"},
        {"architecture": "*"},
        {"model": "our/\ud800"},
    ],
)
def test_a_draft_names_what_it_is_about_or_is_none(tmp_path: Path, changes: Any) -> None:
    folder = tmp_path / "k"
    settings = changes.pop("settings", ("pass=no_such_pass",))
    one = replace(observation(**{"architecture": "no_such_net", **changes}), settings=settings)
    assert learn(folder, [one]) == (0, 0)
    load_knowledge(folder)


def test_a_title_of_any_text_makes_a_draft_that_can_be_read(tmp_path: Path) -> None:
    one = replace(observation(architecture="no_such_net"), title="a\x1b[31m\ntitle")
    assert learn(tmp_path / "k", [one]) == (1, 1)
    titles = [one.title for one in load_knowledge(tmp_path / "k").findings.values()]
    assert "a title: 12 % faster on no_such_net" in titles
