"""`modelmill tune` as a user types it: a real model, built, checked and measured here."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from matrix.trials import SessionKind, TuningStatus, Verdict
from tests.machine.timing import eventually
from tests.sweeps.command import Project
from tests.tunings.project import tuning_project, words

pytestmark = pytest.mark.engine


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return tuning_project(tmp_path)


def sessions(project: Project) -> list[tuple[str, SessionKind, int, float]]:
    """What has been measured so far, with the time at which each session ended."""
    if not (project.home / "state.db").exists():
        return []
    with project.state() as state:
        rows = [row for one in state.tunings("night") for row in state.sessions(one.id)]
        return [(row.trial, row.kind, row.number, row.at) for row in rows]


def test_a_tuning_is_killed_and_goes_on_with_what_was_measured(project: Project) -> None:
    begun = words("night", "mlas_cpu", "no-convolutions", "plain-session")
    with project.start(*begun, plain=True) as running:
        assert eventually(lambda: bool(sessions(project)), 120)
        running.signal(signal.SIGKILL)
        running.end()
    assert project.alone()
    before = sessions(project)
    ran = project.ok("tune", "--resume", "night", "--json")
    assert sessions(project)[: len(before)] == before
    (found,) = json.loads(ran.out)
    trials = {one["key"]: one for one in found["trials"]}
    assert trials["no-convolutions"]["verdict"] == Verdict.SAME
    assert trials["no-convolutions"]["same_as"] == "baseline"
    plain = trials["plain-session"]
    assert plain["verdict"] in {"better", "no difference", "worse", "too noisy"}
    assert plain["settings"] == ["runtime=level:disabled"]
    assert {rung["name"]: rung["passed"] for rung in plain["accuracy"]}["parity"]
    tuning = found["tuning"]
    assert tuning["status"] == TuningStatus.DONE
    assert tuning["insight"]["nodes"] > 0
    assert tuning["insight"]["top"], "the baseline was traced"
    kinds = [kind for _, kind, *_ in sessions(project)]
    # On a busy machine the screening alone may find it too slow.
    assert kinds[:4] == ["screen", *3 * ["comparison"]] or plain["screen"] >= 1.5
    _refused_and_shown(project)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM")
def test_a_tuning_that_is_ended_by_a_scheduler_says_how_it_goes_on(project: Project) -> None:
    with project.start(*words("night", "mlas_cpu", "plain-session"), plain=True) as running:
        running.until("tuning night: 1 model")
        running.signal(signal.SIGTERM)
        ran = running.end()
    assert ran.code == 130
    assert "continue with: modelmill tune --resume night" in ran.out + ran.err
    assert project.alone()


def _refused_and_shown(project: Project) -> None:
    """What else a user types, once there is a tuning."""
    again = ("tune", "catalog.toml", "--target", "mlas_cpu", "--name", "night")
    refused = {
        again: "there is a tuning called night already",
        ("tune", "--resume", "other"): "there is no tuning called 'other' (known: night)",
        ("tune", "--resume", "night", "--seed", "3"): "--seed is for new tunings",
        ("tune", "a b", "--target", "mlas_cpu"): "is neither a catalog nor a model",
        (*again, "--sessions", "2"): "a comparison has at least 3",
        (*again[:-1], "A b"): "may hold a-z, 0-9 and -",
        ("tune", "catalog.toml"): "no target is given",
    }
    *ran, shown = project.session([*refused, ("tune", "--resume", "night")])
    for one, told in zip(ran, refused.values(), strict=True):
        assert one.code == 2
        assert told in one.err
        assert len(one.err.splitlines()) == 1
    assert (shown.code, shown.err) == (0, "")
    assert "plain-session" in shown.out
    assert "no champion: 1 same, 1 " in shown.out or "champion: plain-session" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 100
