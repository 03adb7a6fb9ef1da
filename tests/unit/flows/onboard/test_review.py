"""Reviews of folders that were spoiled; nothing here is built, so none is approved."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from flows.onboard import folder as files
from flows.onboard.claims import Answer
from flows.onboard.coverage import Effort
from flows.onboard.folder import Record, row_of
from flows.onboard.goals import Verdict as Ended
from flows.onboard.review import Review, Reviewed
from flows.settings.resolution import resolve
from matrix.coverage import Verdict
from tests.onboarding.records import (
    BENCH,
    BUILD,
    ENTRY,
    RUNGS,
    bench,
    built,
    record,
    written,
)


def reviewed(folder: Path) -> Reviewed:
    settings = resolve({"home": str(folder.parent / "home")}, {}, folder.parent)
    return Review(folder, settings).go(date(2026, 1, 1))


def said(found: Reviewed) -> str:
    return "\n".join(f"{one.answer}: {one.text}" for one in found.objections)


def test_without_its_model_a_folder_cannot_be_checked_and_is_not_approved(tmp_path: Path) -> None:
    written(tmp_path / "f", record())
    found = reviewed(tmp_path / "f")
    assert found.answer is Answer.REQUEST_CHANGES
    assert [one.text.partition(":")[0] for one in found.objections] == ["it cannot be checked here"]
    assert found.checked == ("6 files by their digests",)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX's")
def test_a_pipe_in_place_of_the_record_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / files.RECORD)
    assert f"{files.RECORD} is not a file" in said(reviewed(tmp_path))


def _tier(goal: str, **changes: Any) -> Callable[[Record], Record]:
    def spoil(made: Record) -> Record:
        tiers = tuple(replace(one, **changes) if one.goal == goal else one for one in made.tiers)
        return replace(made, tiers=tiers)

    return spoil


def _package(**changes: Any) -> Callable[[Record], Record]:
    def spoil(made: Record) -> Record:
        return replace(made, packages=(replace(made.packages[0], **changes),))

    return spoil


def _first_entry(made: Record) -> Record:
    probe = replace(made.probe, effort=Effort.FIRST_ENTRY, findings=())
    made = replace(made, effort=Effort.FIRST_ENTRY, probe=probe)
    return replace(made, row=row_of(made))


@pytest.mark.parametrize(
    ("spoil", "answer", "text"),
    [
        (_tier("L1", numbers={"mlas_cpu": {"p50": 0.5}}), Answer.REJECT, "another latency"),
        (_tier("L1", numbers={"qnn_npu": {"p50": 1.0}}), Answer.REJECT, "none of its packages"),
        (_tier("L2", numbers={"source": {"samples": 16}}), Answer.REJECT,
         "L2 claims another comparison"),
        (_tier("L1", verdict=Ended.HOST_BLOCKED, numbers={}), Answer.REQUEST_CHANGES,
         "item 9 is missing: L1 is blocked by this machine"),
        (lambda one: replace(one, entry=ENTRY.partition("verify")[0]), Answer.REJECT,
         "L3 passes, but the entry names no dataset"),
        (lambda one: replace(one, model="other/model"), Answer.REJECT, "its entry is of another"),
        (lambda one: replace(one, row={**one.row, "goal": "L9"}), Answer.REJECT, "the row of its"),
        (lambda one: replace(one, targets=("mlas_cpu", "qnn_npu")), Answer.REJECT, "its targets"),
        (_package(tree="0" * 64), Answer.REJECT, "its files are not those that were built"),
        (_package(folder="packages/../packages/mlas_cpu"), Answer.REJECT, "is not in packages"),
        (_package(folder=""), Answer.REJECT, "L0 passes, but mlas_cpu was not built"),
        (_package(weights={"float16": 4}), Answer.REJECT, "something else of its rungs or weights"),
        (_package(success="all holds"), Answer.REJECT, "something else of its rungs or weights"),
        (_package(log="logs/no.log"), Answer.REQUEST_CHANGES, "item 4 is missing: the logs"),
        (lambda one: replace(one, effort=Effort.ENTRY, probe=replace(one.probe, findings=())),
         Answer.REJECT, "its coverage means first entry"),
        (_first_entry, Answer.REQUEST_CHANGES, "item 5 is missing: a draft finding"),
        (_tier("L1", verdict=Ended.FAIL), Answer.REJECT, "L2 passes above L1, which failed"),
        (_tier("L3", verdict=Ended.NOT_RUN), Answer.REJECT, "claims the goal L3"),
        (_tier("L2", numbers={}), Answer.REJECT, "L2 passes without a number"),
        (_tier("L2", evidence=("no.json",)), Answer.REQUEST_CHANGES, "no.json is not in"),
        (lambda one: replace(one, effort=Effort.EXPORTER), Answer.REJECT, "claims the effort"),
        (lambda one: replace(one, goal="L0"), Answer.REJECT, "claims the goal L0"),
        (lambda one: replace(one, method=()), Answer.REQUEST_CHANGES, "item 9 is missing"),
        (lambda one: replace(one, method=(" ",)), Answer.REQUEST_CHANGES, "item 9 is missing"),
        (lambda one: replace(one, packages=()), Answer.REQUEST_CHANGES, "item 3 is missing"),
        (lambda one: replace(one, row={}), Answer.REQUEST_CHANGES, "item 2 is missing"),
        (lambda one: replace(one, finding="[[finding]]\n"), Answer.REQUEST_CHANGES, "is missing"),
        (lambda one: replace(one, tiers=one.tiers[:2]), Answer.REJECT, "not L0 to L3"),
    ],
)  # fmt: skip
def test_a_claim_that_the_folder_does_not_bear(
    tmp_path: Path, spoil: Callable[[Record], Record], answer: Answer, text: str
) -> None:
    written(tmp_path / "f", spoil(record()))
    found = reviewed(tmp_path / "f")
    assert found.answer is answer, said(found)
    assert text in said(found)


def _rungs(name: str, passed: bool | None) -> dict[str, Any]:
    rungs = [replace(one, passed=passed) if one.name == name else one for one in RUNGS]
    return built(verification=rungs)


def _export(**facts: Any) -> dict[str, Any]:
    return built(manifest={"stages": [{"stage": "export", "facts": facts}]})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"build_mlas_cpu": _rungs("loads", passed=None)}, "L0 passes, but loads of mlas_cpu"),
        ({"build_mlas_cpu": _rungs("parity", passed=False)}, "L2 passes, but parity of mlas_cpu"),
        ({"build_mlas_cpu": _rungs("task", passed=None)}, "L3 passes, but task of mlas_cpu"),
        (
            {"build_mlas_cpu": built(tree="0" * 64)},
            "its files are not those that were built",
        ),
        ({"build_mlas_cpu": []}, "its evidence cannot be read"),
        ({"build_mlas_cpu": built(verification=[1])}, "its evidence cannot be read"),
        ({"bench_mlas_cpu": bench(p50=0.5)}, "L1 claims another latency of mlas_cpu"),
        ({"bench_mlas_cpu": bench(emulated=True)}, "which its evidence does not measure"),
        ({"bench_mlas_cpu": bench("1" * 64)}, "which its evidence does not measure"),
        ({"bench_mlas_cpu": {}}, "its evidence cannot be read"),
        ({"build_mlas_cpu": _export(compared={"not": "so"})}, "the export of mlas_cpu was not"),
        ({"build_mlas_cpu": _export()}, "the export of mlas_cpu was not compared"),
        ({"build_mlas_cpu": _export(compared={"samples": 4})}, "L2 claims another comparison"),
        ({"probe": {"why": "it builds"}}, "its evidence cannot be read"),
        ({"probe": replace(record().probe, why="it builds")}, "evidence/probe.json differs"),
    ],
)
def test_a_pass_that_its_evidence_does_not_show_is_rejected(
    tmp_path: Path, changed: dict[str, Any], text: str
) -> None:
    written(tmp_path / "f", record(), **changed)
    found = reviewed(tmp_path / "f")
    assert found.answer is Answer.REJECT, said(found)
    assert text in said(found)


def test_evidence_that_is_in_no_record_is_asked_for(tmp_path: Path) -> None:
    written(tmp_path / "f", record())
    data = json.loads((tmp_path / "f" / files.RECORD).read_text())
    del data["files"][BENCH]
    (tmp_path / "f" / BENCH).unlink()
    for tier in data["tiers"]:
        tier["evidence"] = [name for name in tier["evidence"] if name != BENCH] or [BUILD]
    (tmp_path / "f" / files.RECORD).write_text(json.dumps(data))
    assert f"L1: its evidence {BENCH} is not in the record" in said(reviewed(tmp_path / "f"))


def test_a_finding_that_only_this_machine_knows_is_no_wrong_effort(tmp_path: Path) -> None:
    made = _first_entry(record())
    review = Review(tmp_path, resolve({"home": str(tmp_path)}, {}, tmp_path))
    known = replace(made.probe, effort=Effort.ENTRY, findings=("family-bert",))
    review._probe(made, known)
    lacking = replace(made.probe, coverage=replace(made.probe.coverage, verdict=Verdict.IMPOSSIBLE))
    review._probe(made, replace(lacking, effort=Effort.MORE))
    assert [one.answer for one in review._found] == [Answer.REQUEST_CHANGES, Answer.REJECT]
    assert "this machine knows the findings family-bert, not none" in review._found[0].text


def _alter(folder: Path) -> None:
    (folder / BENCH).write_text('{"better": true}')


def _remove(folder: Path) -> None:
    (folder / BENCH).unlink()


def _add(folder: Path) -> None:
    (folder / "extra.py").write_text("import os")


def _entry(folder: Path) -> None:
    (folder / files.CATALOG).write_text(ENTRY + "opset = 20\n")


def _report(folder: Path) -> None:
    (folder / files.REPORT).write_text("all is well")


def _escape(folder: Path) -> None:
    data = json.loads((folder / files.RECORD).read_text())
    data["files"]["../../secret"] = {"sha256": "0" * 64, "size": 1}
    (folder / files.RECORD).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("spoil", "answer", "text"),
    [
        (_alter, Answer.REJECT, f"{BENCH} was changed"),
        (_remove, Answer.REQUEST_CHANGES, f"{BENCH} is missing"),
        (_add, Answer.REJECT, "extra.py does not belong to the record"),
        (_entry, Answer.REJECT, f"{files.CATALOG} was changed"),
        (_report, Answer.REJECT, "does not match"),
        (_escape, Answer.REJECT, "../../secret leads out of the folder"),
    ],
)
def test_files_that_are_not_those_of_the_record(
    tmp_path: Path, spoil: Callable[[Path], None], answer: Answer, text: str
) -> None:
    written(tmp_path / "f", record())
    spoil(tmp_path / "f")
    found = reviewed(tmp_path / "f")
    assert found.answer is answer, said(found)
    assert text in said(found)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read"),
        ("{", "is no record"),
        ("[]", "Expected `object`"),
        ('{"schema": 2}', "use a newer modelmill"),
        ('{"model": "a"}', "missing required field"),
        ("[" * 100_000, "is no record"),
    ],
)
def test_a_folder_without_a_record_is_one_clear_line(
    tmp_path: Path, content: str | None, text: str
) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    if content is not None:
        (folder / files.RECORD).write_text(content)
    found = reviewed(folder)
    assert found.answer is Answer.REQUEST_CHANGES
    (one,) = found.objections
    assert text in one.text
    assert "\n" not in one.text


def test_settings_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    written(tmp_path / "f", replace(record(), settings={"iterations": "many"}))
    assert "its settings cannot be read: iterations" in said(reviewed(tmp_path / "f"))


@pytest.mark.parametrize("entry", ["model = []\n", "model = 3\n", "model = [3]\n", "", 2 * ENTRY])
def test_a_catalog_without_its_one_entry_is_told(tmp_path: Path, entry: str) -> None:
    written(tmp_path / "f", replace(record(), entry=entry))
    found = reviewed(tmp_path / "f")
    assert found.answer is Answer.REQUEST_CHANGES
    assert "it cannot be checked here: catalog.toml has" in said(found)


def test_an_entry_of_any_form_is_one_clear_line(tmp_path: Path) -> None:
    written(tmp_path / "f", replace(record(), entry=f"{ENTRY}verify = 3\n"))
    assert "it cannot be checked here" in said(reviewed(tmp_path / "f"))
