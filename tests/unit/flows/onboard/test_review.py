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
from flows.onboard.coverage import Effort
from flows.onboard.folder import File, Record, row_of
from flows.onboard.goals import Verdict as Ended
from flows.onboard.review import Answer, Review, Reviewed
from flows.settings.resolution import resolve
from matrix.coverage import Verdict
from tests.onboarding.records import (
    BENCH,
    BUILD,
    ENTRY,
    PLACE,
    RUNGS,
    TREE,
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


def compared(said: Record, here: Record, folder: Path) -> Reviewed:
    """The answer when this came out here."""
    review = Review(folder, resolve({"home": str(folder)}, {}, folder))
    review.compare(written(folder / "said", said), written(folder / "here", here))
    return review._answered()


def test_what_comes_out_again_is_approved(tmp_path: Path) -> None:
    found = compared(record(), record(), tmp_path)
    assert found.answer is Answer.APPROVE
    assert found.checked == (
        "the probe: it is known",
        "mlas_cpu builds to the same bytes",
        "mlas_cpu is sound",
        "mlas_cpu takes 1 ms, as claimed within 20%",
        "the export computes what its source model does",
    )


FAILS = ", ".join(f"{one.name} {'fails' if one.name == 'parity' else 'holds'}" for one in RUNGS)
UNJUDGED = FAILS.replace("parity fails", "parity not run")
REJECT, ASK = Answer.REJECT, Answer.REQUEST_CHANGES


@pytest.mark.parametrize(
    ("spoil", "answer", "text"),
    [
        (_tier("L1", numbers={"mlas_cpu": {"p50": 0.5}}), ASK, "takes 1 ms here, not 0.5 ms"),
        (_tier("L1", numbers={"mlas_cpu": "fast"}), ASK, "takes 1 ms here, not inf ms"),
        (_tier("L1", numbers={"qnn_npu": {"p50": 1.0}}), REJECT, "none of its packages"),
        (_tier("L1", numbers={}), REJECT, "L1 passes without a number"),
        (_tier("L1", verdict=Ended.HOST_BLOCKED), ASK,
         "L1 is said to be blocked by this machine, here it is pass"),
        (_tier("L2", numbers={"source": {"samples": 16}}), REJECT, "compared in another way"),
        (_tier("L3", why="accuracy 100 %"), ASK, "L3 says 'accuracy 100 %', here 'so'"),
        (lambda one: replace(one, tiers=one.tiers[:2]), REJECT, "its tiers are 'L0, L1', here"),
        (lambda one: replace(one, model="other/model"), REJECT, "its model 'other/model', here it"),
        (lambda one: replace(one, targets=("mlas_cpu", "qnn_npu")), REJECT, "of its targets"),
        (lambda one: replace(one, tools={"onnx": "1"}), ASK, "here are onnx None, not 1"),
        (lambda one: replace(one, packages=()), ASK, "item 3 is missing: the package for mlas_cpu"),
        (lambda one: replace(one, packages=2 * one.packages), REJECT, "does not plan"),
        (_package(target="qnn_npu"), REJECT, "a package for qnn_npu, which its entry does not"),
        (_package(cell="a@b"), REJECT, "mlas_cpu is a@b in packages/mlas_cpu, here our/model"),
        (_package(folder="packages/other"), REJECT, "in packages/other, here"),
        (_package(folder=""), REJECT, "in no folder, here"),
        (_package(tree="0" * 64), REJECT, f"builds other bytes here: {TREE[:16]}, not 0000"),
        (_package(weights={"float16": 4}), REJECT, "has other weights than the record says"),
        (_package(success="all holds"), REJECT, "integrity holds, not not known"),
        (_package(success=FAILS), REJECT, "here parity holds, not fails"),
        (lambda one: replace(one, probe=replace(one.probe, why="x")), REJECT, "its probe says: x"),
        (lambda one: replace(one, effort=Effort.EXPORTER), REJECT, "claims the effort exporter"),
        (lambda one: replace(one, probe=replace(one.probe, effort=Effort.MORE)), REJECT,
         "claims the effort more than an exporter, its coverage means entry"),
    ],
)  # fmt: skip
def test_a_claim_that_does_not_come_out_again(
    tmp_path: Path, spoil: Callable[[Record], Record], answer: Answer, text: str
) -> None:
    found = compared(spoil(record()), record(), tmp_path)
    assert found.answer is answer, said(found)
    assert text in said(found)


@pytest.mark.parametrize(
    ("here", "answer", "text"),
    [
        (_package(success=FAILS), REJECT, "mlas_cpu: here parity fails, not holds"),
        (_package(success=UNJUDGED), ASK, "mlas_cpu: parity cannot be judged here"),
        (_package(folder="", tree=""), REJECT, "has a package, here it is not built: so"),
        (_tier("L2", verdict=Ended.FAIL), REJECT, "L2 is said to pass, here it is fail: so"),
        (_tier("L2", verdict=Ended.NOT_RUN), REJECT, "here it is not run"),
        (_tier("L2", verdict=Ended.TOOL_BLOCKED), REJECT, "here it is blocked by a tool"),
        (_tier("L2", verdict=Ended.HOST_BLOCKED), ASK, "here it is blocked by this machine"),
        (_tier("L2", verdict=Ended.TIMED_OUT), ASK, "here it is timed out"),
        (_tier("L1", numbers={"other": {"p50": 1.0}}), ASK, "mlas_cpu cannot be measured on this"),
    ],
)
def test_what_this_machine_finds_out(
    tmp_path: Path, here: Callable[[Record], Record], answer: Answer, text: str
) -> None:
    found = compared(record(), here(record()), tmp_path)
    assert found.answer is answer, said(found)
    assert text in said(found)


def test_a_machine_that_cannot_build_does_not_reject(tmp_path: Path) -> None:
    lacking = _tier("L0", verdict=Ended.HOST_BLOCKED)(_package(folder="", tree="")(record()))
    found = compared(record(), lacking, tmp_path)
    assert found.answer is ASK, said(found)


def test_files_of_a_package_that_are_not_those_of_its_tree(tmp_path: Path) -> None:
    made, here = (written(tmp_path / name, record()) for name in ("said", "here"))
    changed = {**made.files, f"{PLACE}/model.onnx": File("0" * 64, 4)}
    review = Review(tmp_path, resolve({"home": str(tmp_path)}, {}, tmp_path))
    review.compare(replace(made, files=changed), here)
    assert "mlas_cpu: its files are not those that are built here" in said(review._answered())


@pytest.mark.parametrize(
    ("spoil", "answer", "text"),
    [
        (lambda one: replace(one, row={**one.row, "goal": "L9"}), REJECT, "the row of its"),
        (lambda one: replace(one, goal="L0"), REJECT, "claims the goal L0"),
        (_tier("L3", verdict=Ended.NOT_RUN), REJECT, "claims the goal L3"),
        (_package(log="logs/no.log"), ASK, "item 4 is missing: the logs"),
        (_first_entry, ASK, "item 5 is missing: a draft finding"),
        (_tier("L1", verdict=Ended.HOST_BLOCKED, numbers={}), ASK,
         "item 9 is missing: L1 is blocked by this machine"),
        (_tier("L2", evidence=("no.json",)), ASK, "no.json is not in"),
        (lambda one: replace(one, method=()), ASK, "item 9 is missing"),
        (lambda one: replace(one, method=(" ",)), ASK, "item 9 is missing"),
        (lambda one: replace(one, packages=()), ASK, "item 3 is missing"),
        (lambda one: replace(one, row={}), ASK, "item 2 is missing"),
        (lambda one: replace(one, finding="[[finding]]\n"), ASK, "is missing"),
    ],
)  # fmt: skip
def test_an_item_that_is_missing_or_contradicts_another(
    tmp_path: Path, spoil: Callable[[Record], Record], answer: Answer, text: str
) -> None:
    written(tmp_path / "f", spoil(record()))
    found = reviewed(tmp_path / "f")
    assert found.answer is answer, said(found)
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
    found = compared(_first_entry(record()), record(), tmp_path)
    assert found.answer is ASK
    assert "this machine knows the findings family-bert, not none" in said(found)
    coverage = replace(record().probe.coverage, verdict=Verdict.IMPOSSIBLE)
    other = replace(record().probe, coverage=coverage, effort=Effort.MORE)
    found = compared(_first_entry(record()), replace(record(), probe=other), tmp_path)
    assert found.answer is REJECT


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
        ("{", "is not a record"),
        ("[]", "Expected `object`"),
        ('{"schema": 2}', "use a newer modelmill"),
        ('{"model": "a"}', "missing required field"),
        ("[" * 100_000, "is not a record"),
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
