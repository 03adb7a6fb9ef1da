"""The file of champions: written, merged, read back, and compared with what is here now."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from flows.plan.planning import plan_of
from flows.plan.recorded import recall, remember
from flows.settings.resolution import resolve
from flows.tune.champions import comparison_digest, keep_champion, stale_lines
from flows.tune.record import Recorded
from matrix.champions import Champion, Key, baseline_digest, read_champions
from matrix.errors import PlanError, Unusable
from tests.measuring.runtimes import CPU
from tests.plans.models import TARGETS
from tests.tunings.champions import a_champion, write_champions
from tests.tunings.fakes import Play
from workers.measure.result import this_machine
from workers.runtimes.runtime import Missing

ALL = a_champion(
    "c-\"d'", target="qnn_npu", opset=21, precision="w8a8", compiled="htp73",
    build={"passes": ["BiasGeluFusion"], "samples": 4, "per_channel": False},
    runtime={"htp_performance_mode": "burst"},
    proof={"emulated": True, "tools": {"onnx runtime": 'a "quoted" \\ path', "torch": "2"}},
)  # fmt: skip


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "champions.toml"
    write_champions(file, [ALL, a_champion()])
    found = read_champions(file, TARGETS)
    assert found == {one.key: one for one in (ALL, a_champion())}
    assert file.read_text("utf-8").startswith("# The best known build of each model")


def kept(file: Path, recorded: Recorded) -> dict[Key, Champion]:
    keep_champion(file, recorded, TARGETS, {"onnx": "1"}, "2026-06-09")
    return read_champions(file, TARGETS) if file.exists() else {}


def test_the_winner_of_a_tuning_is_kept_with_its_proof(stage: Play, tmp_path: Path) -> None:
    recorded = stage({19: 0.8}).played()
    (one,) = kept(tmp_path / "deep" / "champions.toml", recorded).values()
    assert (one.cell, one.engine) == ("a/b:fill-mask@mlas_cpu", "optimum")
    assert one.changes.settings == ("opset=19",)
    trial, cell, proof = recorded.champion, recorded.tuning.cell, one.proof
    assert trial is not None
    assert trial.gain is not None
    assert (proof.tuning, proof.trial) == ("night", "opset-19")
    assert proof.gain == pytest.approx(trial.gain.gain, abs=1e-3)
    assert proof.comparison == comparison_digest(trial)
    assert proof.baseline == baseline_digest(cell.model, cell.target)
    assert (proof.tools, proof.at, proof.emulated) == ({"onnx": "1"}, "2026-06-09", False)
    assert proof.runtime["provider"] == "CPUExecutionProvider"
    assert proof.machine["processor"] == this_machine().processor


def test_a_new_one_takes_the_place_of_the_old_one_and_the_rest_stays(
    stage: Play, tmp_path: Path
) -> None:
    file = tmp_path / "champions.toml"
    old = a_champion(opset=18)
    write_champions(file, [ALL, old])
    found = kept(file, stage({19: 0.8}).played())
    assert found[ALL.key] == ALL
    assert found[old.key].changes.opset == 19


@pytest.mark.parametrize(
    ("trial", "model", "stays"),
    [("opset-19", "a/b", False), ("opset-19", "c", True), ("opset-21", "a/b", True)],
)
def test_one_that_was_tried_again_in_vain_is_no_champion(
    stage: Play, tmp_path: Path, trial: str, model: str, *, stays: bool
) -> None:
    file = tmp_path / "champions.toml"
    one = a_champion(model, proof={"trial": trial})
    write_champions(file, [one])
    assert (one.key in kept(file, stage({19: 1.0}).played())) == stays


def test_a_champion_of_another_precision_in_the_same_tuning_stays(
    stage: Play, tmp_path: Path
) -> None:
    file = tmp_path / "champions.toml"
    one = a_champion(proof={"trial": "opset-19", "tuning": "night"})
    write_champions(file, [one])
    assert one.key in kept(file, stage({19: 1.0}).played())


def test_without_a_winner_no_file_is_made(stage: Play, tmp_path: Path) -> None:
    assert kept(tmp_path / "champions.toml", stage({19: 1.0}).played()) == {}
    assert not (tmp_path / "champions.toml").exists()


def test_a_damaged_file_is_left_as_it_is(stage: Play, tmp_path: Path) -> None:
    file = tmp_path / "champions.toml"
    file.write_text("[[champion", "utf-8")
    with pytest.raises(PlanError, match="is not valid TOML"):
        kept(file, stage({19: 0.8}).played())
    assert file.read_text("utf-8") == "[[champion"


def test_a_place_that_cannot_be_written(stage: Play, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unusable, match=r"cannot be written.*--champions"):
        kept(tmp_path / "file" / "champions.toml", stage({19: 0.8}).played())


def test_tunings_can_end_at_once(stage: Play, tmp_path: Path) -> None:
    file, recorded = tmp_path / "champions.toml", stage({19: 0.8}).played()
    cell = recorded.tuning.cell
    each = [
        replace(
            recorded,
            tuning=replace(
                recorded.tuning, cell=replace(cell, model=replace(cell.model, id=f"m{number}"))
            ),
        )
        for number in range(6)
    ]
    threads = [threading.Thread(target=kept, args=(file, one)) for one in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key[0] for key in read_champions(file, TARGETS)} == {f"m{n}" for n in range(6)}


def now(champion: Champion) -> Champion:
    """As it would be if it had been measured on this machine."""
    machine = {"name": "box", "processor": this_machine().processor}
    runtime = {"provider": CPU.provider, "device": CPU.device, "version": CPU.version}
    proof = replace(champion.proof, machine=machine, runtime=runtime, tools={"onnx": "1"})
    return replace(champion, proof=proof)


def test_nothing_has_changed() -> None:
    one = now(a_champion())
    assert list(stale_lines([one], {"onnx": "1", "torch": "2"}, {"mlas_cpu": CPU})) == []


def test_what_has_changed_is_told() -> None:
    one = now(a_champion())
    (line,) = stale_lines([one], {"onnx": "2"}, {"mlas_cpu": replace(CPU, version="9")})
    assert "is stale: onnx was 1, and is 2; its runtime was 1.0, and is 9" in line
    (line,) = stale_lines([one], {"torch": "2"}, {"mlas_cpu": CPU})
    assert "onnx was 1, and is missing" in line
    moved = replace(one, proof=replace(one.proof, machine={"processor": "another"}))
    (line,) = stale_lines([moved], {"onnx": "1"}, {"mlas_cpu": CPU})
    assert "it was measured on another, this machine has" in line


def test_what_cannot_be_known_here_is_told() -> None:
    one = now(a_champion())
    missing = Missing("CPUExecutionProvider", "cpu", "it is not installed")
    (line,) = stale_lines([one], {"onnx": "1"}, {"mlas_cpu": missing})
    assert line.endswith("not known here whether its device has changed: it is not installed")
    (line,) = stale_lines([one], {}, {"mlas_cpu": CPU})
    assert line.endswith("not known here whether its tools have changed")


def test_a_sweep_applies_them_and_records_the_file(tmp_path: Path) -> None:
    write_champions(tmp_path / "champions.toml", [a_champion("demo/bert-tiny", opset=19)])
    (tmp_path / "c.toml").write_text(
        '[[model]]\nid = "demo/bert-tiny"\ntask = "fill-mask"\nrandom = { architecture = "bert" }\n'
    )
    settings = resolve({"champions": "champions.toml"}, {}, tmp_path)
    plan = plan_of(settings, "c.toml", date(2026, 6, 9))
    opsets = {cell.target.label: cell.policy.opset for cell in plan.cells()}
    assert opsets.pop("mlas_cpu") == 19
    assert set(opsets.values()) == {17}
    told = remember(settings, "c.toml")
    assert told["champions"] == str(tmp_path / "champions.toml")
    again, _ = recall(resolve({}, {}, tmp_path), "1", told)
    assert again.champions == told["champions"]
