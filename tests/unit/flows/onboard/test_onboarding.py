"""Where an onboarding may write, and what its tiers say; nothing is built here."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.cli.resolution import resolve
from flows.onboard import folder as files
from flows.onboard.climb import Cellwork, Climb, clear
from flows.onboard.entry import Wanted
from flows.onboard.folder import Package
from flows.onboard.goals import Tier, Verdict
from flows.onboard.onboarding import Onboarding
from matrix.errors import UsageError
from tests.onboarding.records import record, written
from workers.build.stages import Rung


def begin(folder: Path, model: str) -> None:
    settings = resolve({"home": str(folder.parent / "home")}, {}, folder.parent)
    Onboarding(Wanted(model, "fill-mask"), folder, settings).go(date(2026, 1, 1))


def test_a_folder_with_a_catalog_of_its_own_is_never_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "mine.log").write_text("mine")
    (folder / "catalog.toml").write_text("[[model]]\n")
    with pytest.raises(UsageError, match="holds other files"):
        begin(folder, "our/model")
    assert (folder / "logs" / "mine.log").read_text() == "mine"


def test_the_proof_of_another_model_is_not_replaced(tmp_path: Path) -> None:
    written(tmp_path / "proof", record())
    with pytest.raises(UsageError, match="has the proof of our/model:fill-mask"):
        begin(tmp_path / "proof", "other/model")
    assert files.read(tmp_path / "proof").model == "our/model"


def test_nothing_of_an_earlier_onboarding_stays(tmp_path: Path) -> None:
    folder = tmp_path / "proof"
    written(folder, record())
    (folder / files.FINDING).write_text("[[finding]]\n")
    clear(folder)
    left = {path.name for path in folder.iterdir()}
    assert left == {files.CATALOG, files.RECORD}


def compared(folder: Path, *unbuilt: str, **parity: bool | None) -> Tier:
    """L2 of targets whose parity holds, fails or was not judged."""
    outputs = {".": {"logits": {"cosine": 1.0, "max_abs": 1e-5, "error": 1e-6}}}
    nothing = cast("Any", None)
    climb = Climb(folder, nothing, [], nothing, nothing, _outputs=outputs)
    for name, passed in parity.items():
        rungs = (Rung("parity", passed, f"so it is on {name}"),)
        package = Package(name, name, f"packages/{name}", "", "", "")
        climbed = cast("Any", SimpleNamespace(rungs=rungs))
        climb.done[name] = Cellwork(nothing, package, climbed)
    for name in unbuilt:
        climb.done[name] = Cellwork(nothing, Package(name, name, "", "", "", ""))
    return climb.compare()


def test_only_targets_whose_parity_was_judged_are_said_to_hold(tmp_path: Path) -> None:
    found = compared(tmp_path, "ov_npu", mlas_cpu=True, qnn_npu=True)
    assert found.verdict is Verdict.PASS
    assert found.why.endswith("parity holds for mlas_cpu, qnn_npu")
    found = compared(tmp_path, mlas_cpu=True, qnn_npu=None)
    assert (found.verdict, found.why) == (Verdict.HOST_BLOCKED, "qnn_npu: so it is on qnn_npu")
    assert compared(tmp_path, mlas_cpu=True, qnn_npu=False).verdict is Verdict.FAIL
