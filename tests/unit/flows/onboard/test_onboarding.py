"""Where an onboarding may write, and what its tiers say; nothing is built here."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.onboard import folder as files
from flows.onboard.climb import Climb, TargetResult, clear, worst_of
from flows.onboard.coverage import Effort
from flows.onboard.entry import Wanted
from flows.onboard.folder import Package
from flows.onboard.goals import GOALS, Tier, Verdict
from flows.onboard.onboarding import Onboarding, draft, held, with_level
from flows.settings.resolution import resolve
from matrix import findings
from matrix.errors import PlanError, UsageError
from matrix.findings import read_findings
from matrix.model import PRIORITIES, Model, Source, SourceKind
from matrix.status import FailureClass
from matrix.verification import Rung
from tests.onboarding.records import COMPARED, ENTRY, record, written
from tests.plans.cells import make_cell
from workers.errors import BuildFailed
from workers.host.watch import Watching


def begin(folder: Path, model: str, home: Path | None = None) -> None:
    settings = resolve({"home": str(home or folder.parent / "home")}, {}, folder.parent)
    Onboarding(Wanted(model, "fill-mask"), folder, settings).go(date(2026, 1, 1))


def test_a_folder_with_a_catalog_of_its_own_is_never_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "mine.log").write_text("mine")
    (folder / "catalog.toml").write_text("[[model]]\n")
    with pytest.raises(UsageError, match="holds other files"):
        begin(folder, "our/model")
    assert (folder / "logs" / "mine.log").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_said_to_be_the_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=r"--dest .* cannot be used"):
        begin(tmp_path / "file" / "proof", "our/model", tmp_path / "home")
    assert (tmp_path / "file").read_text() == "mine"


def test_the_proof_of_another_model_is_not_replaced(tmp_path: Path) -> None:
    written(tmp_path / "proof", record())
    with pytest.raises(UsageError, match="has the proof of our/model:fill-mask"):
        begin(tmp_path / "proof", "other/model")
    assert files.read(tmp_path / "proof").model == "our/model"


def test_nothing_of_an_earlier_onboarding_stays(tmp_path: Path) -> None:
    folder = tmp_path / "proof"
    written(folder, record())
    (folder / files.FINDING).write_text("[[finding]]\n")
    for name in ("packages/mlas_cpu/half", ".onboarding.json.1a2b3c4d5e6f", ".catalog.toml"):
        (folder / name).write_text("half")
    clear(folder)
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert left == {files.PROBE}


def test_a_plan_that_is_refused_leaves_the_earlier_proof_alone(tmp_path: Path) -> None:
    written(tmp_path / "proof", replace(record(), entry=ENTRY.replace("nowhere", "../nowhere")))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "ours.toml").write_text(ENTRY.replace("fill-mask", 'fill-mask"\nopset = "9'))
    settings = resolve({"home": str(tmp_path / "home")}, {}, tmp_path)
    wanted = Wanted("our/model", "fill-mask", "ours.toml")
    with pytest.raises(PlanError):
        Onboarding(wanted, tmp_path / "proof", settings).go(date(2026, 1, 1))
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in (tmp_path / "proof").iterdir()} == {
        path.relative_to(tmp_path / "proof").parts[0] for path in before
    }


def test_the_proof_of_another_folder_with_the_same_name_is_not_replaced(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "model").mkdir(parents=True)
    entry = ENTRY.replace("our/model", "local/model").replace("nowhere", "../a/model")
    written(tmp_path / "proof", replace(record(), model="local/model", entry=entry))
    with pytest.raises(UsageError, match=r"has the proof of local/model:fill-mask in \.\./a/model"):
        begin(tmp_path / "proof", "b/model")


def test_two_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    settings = resolve({"home": str(tmp_path / "home")}, {}, tmp_path)
    with held(settings, tmp_path / "proof"), pytest.raises(UsageError, match="another process"):
        begin(tmp_path / "proof", "our/model")
    assert not (tmp_path / "proof").exists()


def test_what_is_set_for_sweeps_does_not_decide_what_is_proven(tmp_path: Path) -> None:
    asked = {"home": "home", "model": ("other/*",), "priority": ("P0",), "skip": ("*",),
             "champions": "best.toml", "self_contained": True, "verify": "loads",
             "target": ("mlas_cpu",)}  # fmt: skip
    settings = resolve(asked, {}, tmp_path)
    found = with_level(settings, {"id": "our/model"})
    assert (found.model, found.skip, found.champions, found.self_contained) == ((), (), None, False)
    assert (found.priority, found.verify, found.target) == (PRIORITIES, "parity", ("mlas_cpu",))


def work(name: str, **rungs: bool | None) -> TargetResult:
    """What came of a target that was built."""
    found = tuple(Rung(rung, passed, f"{rung} of {name}") for rung, passed in rungs.items())
    climbed = cast("Any", SimpleNamespace(rungs=found))
    package = Package(name, name, f"packages/{name}", "", "", "")
    return TargetResult(package, climbed)


def unbuilt(name: str, failure: FailureClass) -> TargetResult:
    """What came of a target that was not built."""
    error = BuildFailed(failure, "export", "it ends here")
    return TargetResult(Package(name, name, "", "", "", ""), error=error)


def ladder(folder: Path, *done: TargetResult, verify: str = "parity") -> Climb:
    nothing, settings = cast("Any", None), resolve({"verify": verify}, {}, folder)
    made = Climb(folder, settings, [], nothing, nothing)
    made.done = {one.package.target: one for one in done}
    return made


SOUND = {"integrity": True, "policy": True, "loads": True, "shapes": True}


def test_a_target_that_fails_decides_whatever_else_is_blocked(tmp_path: Path) -> None:
    unsupported = unbuilt("a", FailureClass.UNSUPPORTED)
    broken = unbuilt("b", FailureClass.EXPORT)
    one = ladder(tmp_path, unsupported, broken, work("c", **SOUND)).build()
    assert one.verdict is Verdict.FAIL
    assert one.why.startswith("b: ")
    two = ladder(
        tmp_path, work("a", **{**SOUND, "loads": None}), work("b", **{**SOUND, "shapes": False})
    )
    assert two.build().why == "b: shapes: shapes of b"
    assert ladder(tmp_path, unsupported).build().verdict is Verdict.TOOL_BLOCKED
    assert ladder(tmp_path, work("a", **SOUND)).build().verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (FailureClass.TIMEOUT, Verdict.TIMED_OUT),
        (FailureClass.MEMORY, Verdict.HOST_BLOCKED),
        (FailureClass.NETWORK, Verdict.HOST_BLOCKED),
        (FailureClass.UNSUPPORTED, Verdict.TOOL_BLOCKED),
        (FailureClass.CRASH, Verdict.FAIL),
    ],
)
def test_a_measurement_that_does_not_end_well_has_the_verdict_of_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: FailureClass, verdict: Verdict
) -> None:
    fault = SimpleNamespace(fault=SimpleNamespace(failure=failure.value, message="so it ended"))
    found = SimpleNamespace(graphs=[fault])
    monkeypatch.setattr("flows.onboard.climb.latency", lambda *_: found)
    monkeypatch.setattr("flows.onboard.climb.put", lambda *_: None)
    tier = ladder(tmp_path, work("a", **SOUND)).measure(cast("Any", None))
    assert (tier.verdict, tier.why) == (verdict, "a: so it ended")

    def fail(*_: object) -> None:
        raise BuildFailed(failure, "measure", "it did not begin")

    monkeypatch.setattr("flows.onboard.climb.latency", fail)
    assert ladder(tmp_path, work("a", **SOUND)).measure(cast("Any", None)).verdict is verdict


def test_the_time_of_an_emulator_is_not_even_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.onboard.climb.latency", lambda *_: None)
    tier = ladder(tmp_path, work("qnn_npu", **SOUND)).measure(cast("Any", None))
    assert (tier.verdict, tier.why) == (Verdict.HOST_BLOCKED, "qnn_npu: only its emulator is here")


def test_a_folder_that_others_review_holds_no_credentials(tmp_path: Path) -> None:
    secret = "hf_" + "a" * 30
    climb = ladder(tmp_path)

    def build(_cell: object, watching: Watching) -> None:
        assert watching.log is not None
        watching.log.write_text(f"401 for {secret}\n", encoding="utf-8")
        raise BuildFailed(FailureClass.AUTH, "export", f"refused: {secret}")

    climb.builder = cast("Any", SimpleNamespace(build=build))
    climb._built(make_cell(label="mlas_cpu"))
    files.put(tmp_path, files.RECORD, {"finding": f"needs {secret}"})
    texts = {path: path.read_text("utf-8") for path in tmp_path.rglob("*") if path.is_file()}
    assert len(texts) == 3
    assert not [path for path, text in texts.items() if secret in text or "***" not in text]


def test_without_a_package_nothing_above_is_run(tmp_path: Path) -> None:
    climb = ladder(tmp_path, unbuilt("a", FailureClass.UNSUPPORTED), verify="task")
    for tier in (climb.measure(cast("Any", None)), climb.compare(), climb.task()):
        assert (tier.verdict, tier.why) == (Verdict.NOT_RUN, "there is no package")


def test_the_metric_is_asked_of_every_package_that_was_built(tmp_path: Path) -> None:
    good, blocked = work("a", task=True), unbuilt("b", FailureClass.UNSUPPORTED)
    assert ladder(tmp_path, good, blocked, verify="task").task().verdict is Verdict.PASS
    unseen, bad = work("c", task=None), work("d", task=False)
    assert ladder(tmp_path, good, unseen, verify="task").task().verdict is Verdict.HOST_BLOCKED
    assert ladder(tmp_path, good, unseen, bad, verify="task").task().verdict is Verdict.FAIL
    assert ladder(tmp_path, good).task().verdict is Verdict.NOT_RUN


def compared(folder: Path, *unbuilt: str, **parity: bool | None) -> Tier:
    """L2 of targets whose parity holds, fails or was not judged."""
    nothing = cast("Any", None)
    climb = Climb(folder, nothing, [], nothing, nothing, _compared=COMPARED)
    for name, passed in parity.items():
        rungs = (Rung("samples", True, ""), Rung("parity", passed, f"so it is on {name}"))
        package = Package(name, name, f"packages/{name}", "", "", "")
        climbed = cast("Any", SimpleNamespace(rungs=rungs))
        climb.done[name] = TargetResult(package, climbed)
    for name in unbuilt:
        climb.done[name] = TargetResult(Package(name, name, "", "", "", ""))
    return climb.compare()


def test_only_targets_whose_parity_was_judged_are_said_to_hold(tmp_path: Path) -> None:
    found = compared(tmp_path, "ov_npu", mlas_cpu=True, qnn_npu=True)
    assert found.verdict is Verdict.PASS
    assert found.why.endswith("parity holds for mlas_cpu, qnn_npu")
    found = compared(tmp_path, mlas_cpu=True, qnn_npu=None)
    assert (found.verdict, found.why) == (Verdict.HOST_BLOCKED, "qnn_npu: so it is on qnn_npu")
    assert compared(tmp_path, mlas_cpu=True, qnn_npu=False).verdict is Verdict.FAIL


def test_parity_on_samples_that_exercise_nothing_does_not_reach_l2(tmp_path: Path) -> None:
    nothing = cast("Any", None)
    climb = Climb(tmp_path, nothing, [], nothing, nothing, _compared=COMPARED)
    rungs = (Rung("samples", False, "no output varies"), Rung("parity", True, ""))
    climbed = cast("Any", SimpleNamespace(rungs=rungs))
    climb.done["a"] = TargetResult(Package("a", "a", "packages/a", "", "", ""), climbed)
    found = climb.compare()
    assert (found.verdict, found.why) == (Verdict.FAIL, "a: no output varies")


def test_an_export_that_was_not_compared_does_not_reach_l2(tmp_path: Path) -> None:
    nothing = cast("Any", None)
    climb = Climb(tmp_path, nothing, [], nothing, nothing, _compared={"not": "it draws lots"})
    found = climb.compare()
    assert found.verdict is Verdict.TOOL_BLOCKED
    assert found.why == "the export is not compared with its source model: it draws lots"


@pytest.mark.parametrize("name", ["our/model", "our/模型"])
def test_a_draft_is_a_finding_with_what_was_reached_and_its_evidence(
    tmp_path: Path, name: str
) -> None:
    made = record()
    tiers = (*made.tiers[:3], Tier("L3", Verdict.NOT_RUN, "no dataset is given"))
    new = replace(made.probe, effort=Effort.FIRST_ENTRY, findings=())
    model = Model(name, "fill-mask", Source(SourceKind.HUB, name))
    text = draft(model, new, tiers, made.packages, date(2026, 1, 1))
    (tmp_path / "draft.toml").write_text(text, "utf-8")
    (found,) = read_findings([tmp_path / "draft.toml"]).values()
    assert (found.kind, found.effort, found.goal) == ("family", "first entry", "L2")
    (seen,) = found.evidence
    assert (seen.supports, seen.model, seen.target) == (True, name, "mlas_cpu")
    assert seen.digest == made.packages[0].tree
    other = draft(replace(model, id=f"{name}型"), new, tiers, (), date(2026, 1, 1))
    assert other.splitlines()[1] != text.splitlines()[1]
    assert draft(model, made.probe, tiers, made.packages, date(2026, 1, 1)) == ""


def test_findings_know_the_efforts_and_goals_of_an_onboarding() -> None:
    assert tuple(findings.EFFORTS) == tuple(one.value for one in Effort)
    assert tuple(findings.GOALS) == tuple(GOALS)


def test_what_all_targets_say_is_told_once() -> None:
    lacking = [(Verdict.FAIL, f"{name}: plan: no config.json") for name in "abcde"]
    lacking += [(Verdict.FAIL, "f: loads: not opened"), (Verdict.HOST_BLOCKED, "g: no device")]
    told = "a, b, c and 2 more: plan: no config.json; f: loads: not opened"
    assert worst_of(lacking) == (Verdict.FAIL, told)
