"""What follows from the trials of a tuning: its champion, what was learned, what explains it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.fleet.launch import CHAMPIONS, conclude_tunings
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from flows.tune.batch import unfinished
from flows.tune.conclusion import champions_file, conclude
from flows.tune.knowledge import EVIDENCE, load_knowledge
from flows.tune.ordering import architecture_of
from flows.tune.record import Kept
from flows.tune.workplace import explained
from matrix.trials import TuningStatus
from tests.tunings.fakes import NAME, Play, Stage


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve({"home": str(tmp_path / "home")}, {}, tmp_path)


def kept(one: Stage) -> Kept:
    (row,) = one.state.tunings(NAME)
    return Kept.read(one.state, row)


def concluded(one: Stage, settings: Settings) -> Kept:
    made = kept(one)
    made.change(tools={"onnx": "1"})
    conclude(settings, made, one.lines.append)
    return made


def test_a_tuning_that_was_killed_before_its_champion_was_kept_is_not_finished(
    stage: Play,
) -> None:
    one = stage({19: 0.8})
    assert one.played().tuning.status is TuningStatus.DONE
    assert unfinished(one.state.tunings(NAME)[0])
    kept(one).change(concluded=True)
    assert not unfinished(one.state.tunings(NAME)[0])


def test_the_command_that_follows_a_fleet_keeps_what_came_of_it_once(
    stage: Play, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stage({19: 0.8})
    one.played()
    kept(one).change(tools={"onnx": "1"})
    file = tmp_path / "mine.toml"
    asked = {CHAMPIONS: str(file)}
    assert conclude_tunings(one.state, settings, NAME, asked, as_json=False)
    told = capsys.readouterr().out
    assert f"{file} has the champions" in told
    assert "opset-19" in told
    assert 'onnx = "1"' in file.read_text("utf-8")
    assert not unfinished(one.state.tunings(NAME)[0])
    file.unlink()
    assert conclude_tunings(one.state, settings, NAME, asked, as_json=True)
    assert not file.exists(), "it is kept once"
    assert json.loads(capsys.readouterr().out)["tunings"][0]["tuning"]["champion"] == "opset-19"


def test_a_champion_that_cannot_be_kept_fails_the_command(stage: Play, settings: Settings) -> None:
    one = stage({19: 0.8})
    one.played()
    champions_file(settings).parent.mkdir(parents=True)
    champions_file(settings).write_text("[[champion", "utf-8")
    assert not conclude_tunings(one.state, settings, NAME, {}, as_json=True)


def test_what_is_still_being_made_is_not_concluded(stage: Play, settings: Settings) -> None:
    one = stage({19: 0.8})
    one.begin()
    assert conclude_tunings(one.state, settings, NAME, {}, as_json=True)
    assert not kept(one).tuning.concluded


def test_a_tuning_that_goes_on_is_concluded_again(stage: Play) -> None:
    one = stage({19: 0.8})
    one.begin(concluded=True, status=TuningStatus.OUT_OF_TIME)
    assert not one.run().tuning.concluded


def test_what_is_learned_has_its_day(stage: Play, settings: Settings) -> None:
    one = stage({19: 0.8})
    one.played()
    concluded(one, settings)
    assert champions_file(settings).exists()
    folder = settings.path(settings.home) / "knowledge"
    assert (folder / EVIDENCE).exists()
    own = [
        seen
        for finding in load_knowledge(folder).findings.values()
        for seen in finding.evidence
        if seen.source.startswith("tuning night")
    ]
    assert own
    assert all(len(seen.at) == len("2026-06-09") for seen in own)


def test_a_file_of_champions_that_cannot_be_read_fails_one_tuning_and_stays(
    stage: Play, settings: Settings
) -> None:
    one = stage({19: 0.8})
    one.played()
    file = champions_file(settings)
    file.parent.mkdir(parents=True)
    file.write_text("[[champion", "utf-8")
    made = concluded(one, settings)
    assert made.tuning.status is TuningStatus.FAILED
    assert "champion not saved" in made.tuning.message
    assert unfinished(one.state.tunings(NAME)[0])
    assert file.read_text("utf-8") == "[[champion"


def test_a_tuning_that_failed_crowns_nobody_with_the_tools_of_now(
    stage: Play, settings: Settings
) -> None:
    one = stage({19: 0.8})
    one.played()
    one.maker.artifacts["opset17"] = "built by other tools"
    assert one.run().tuning.status is TuningStatus.FAILED
    concluded(one, settings)
    assert not champions_file(settings).exists()


def test_whatever_fails_while_it_is_explained_costs_the_explanation_alone(stage: Play) -> None:
    one = stage({19: 0.8})
    tuning = one.played().tuning
    one.maker.failing["opset17"] = OSError(28, "No space left on device")
    told = explained(tuning, one.place())
    assert "No space left" in told["reason"]


@pytest.mark.parametrize(
    ("stages", "architecture"),
    [
        ([{"stage": "export", "facts": {"model_type": "vit"}}], "vit"),
        ([{"stage": "optimize", "facts": {"model_type": "vit"}}], ""),
        ([{"stage": "export", "facts": {}}], ""),
    ],
)
def test_the_export_tells_the_architecture(stages: list[Any], architecture: str) -> None:
    made = SimpleNamespace(built=SimpleNamespace(manifest={"stages": stages}))
    assert architecture_of(cast("Any", made)) == architecture


def test_a_tuning_began_before_its_first_session(stage: Play) -> None:
    one = stage({19: 0.8})
    one.played()
    (row,) = one.state.tunings(NAME)
    assert row.began_at is not None
    assert row.began_at <= min(seen.at for seen in one.state.sessions(row.id))
