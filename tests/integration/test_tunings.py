"""Tunings of catalogs, of several at once, and on the runtimes of vendors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from machine.ledger import Ledger
from machine.reservations import DISTURBS, WHOLE
from matrix.trials import TuningStatus
from tests.services import installing
from tests.sweeps.command import Project, model
from tests.tunings.project import tuning_project, words

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_a_model_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    project = tuning_project(tmp_path, "fake")
    project.catalog(model("tiny/a"), model("tiny/b", act={"export": "exit:3"}), model("tiny/c"))
    ran = project.run(*words("night", "mlas_cpu", "as-it-is"), "--json")
    assert ran.code == 1, ran
    found = {one["tuning"]["model"]: one["tuning"] for one in json.loads(ran.out)}
    statuses = {name.partition(":")[0]: one["status"] for name, one in found.items()}
    done, failed = TuningStatus.DONE, TuningStatus.FAILED
    assert statuses == {"tiny/a": done, "tiny/b": failed, "tiny/c": done}
    assert "exit code 3" in found["tiny/b:fill-mask"]["message"]
    project.catalog(model("tiny/a"))
    again = project.run("tune", "--resume", "night")
    assert again.code == 1
    assert "tiny/b" in again.out.splitlines()[1], "what is done is not done again"


def test_two_tunings_at_once_take_turns(tmp_path: Path) -> None:
    project = tuning_project(tmp_path)
    ledger = Ledger(tmp_path / "machine")
    seen: list[tuple[int, int]] = []
    first = words("one", "mlas_cpu", "plain-session")
    second = words("two", "mlas_cpu", "plain-session")
    with project.start(*first, "--json") as one, project.start(*second, "--json") as other:
        while one.popen.poll() is None or other.popen.poll() is None:
            seen.append(_quiet(ledger))
        ran = [one.end(), other.end()]
    assert [each.code for each in ran] == [0, 0]
    assert max(alone for alone, _ in seen) == 1
    assert all(not busy for alone, busy in seen if alone)


def _quiet(ledger: Ledger) -> tuple[int, int]:
    """How many measure now, and how many do what disturbs that."""
    with ledger.everybody() as entries:
        held = [
            holding.amounts.get(DISTURBS.resource, 0)
            for entry in entries
            for holding in entry.held.values()
        ]
    return sum(one >= WHOLE for one in held), sum(0 < one < WHOLE for one in held)


@pytest.mark.vendor
@pytest.mark.parametrize(
    ("target", "runtime", "hypothesis"),
    [("ov_cpu", "openvino", "one-stream"), ("qnn_npu", "qnn", "burst")],
)
def test_vendors_runtimes(tmp_path: Path, target: str, runtime: str, hypothesis: str) -> None:
    installing.runtime(runtime)
    project = tuning_project(tmp_path)
    project.env |= {"MODELMILL_RUNTIMES": runtime, "MODELMILL_EMULATED": "1"}
    found = _tuned(project, words("night", target, hypothesis))
    tuning, trials = found["tuning"], {one["key"]: one for one in found["trials"]}
    assert tuning["runtime"]["emulated"] is (runtime == "qnn")
    assert trials[hypothesis]["verdict"] in {"better", "no difference", "worse", "too noisy"}
    if runtime == "qnn":
        assert tuning["champion"] == ""
        shown = project.ok("tune", "--resume", "night").out
        assert "measured on an emulator" in shown


def _tuned(project: Project, command: tuple[str, ...]) -> dict[str, Any]:
    (found,) = json.loads(project.ok(*command, "--json").out)
    assert found["tuning"]["status"] == TuningStatus.DONE
    return dict(found)
