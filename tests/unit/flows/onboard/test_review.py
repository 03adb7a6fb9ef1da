"""Reviews of folders that were spoiled; nothing here is built, so none is approved."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from flows.cli.resolution import resolve
from flows.onboard import folder as files
from flows.onboard.coverage import Effort
from flows.onboard.folder import Record
from flows.onboard.goals import Verdict as Ended
from flows.onboard.review import Answer, Review, Reviewed
from tests.onboarding.records import ENTRY, EVIDENCE, record, written


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
    assert found.checked == ("5 files by their digests",)


def _tier(goal: str, **changes: Any) -> Callable[[Record], Record]:
    def spoil(made: Record) -> Record:
        tiers = tuple(replace(one, **changes) if one.goal == goal else one for one in made.tiers)
        return replace(made, tiers=tiers)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "answer", "text"),
    [
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


def _alter(folder: Path) -> None:
    (folder / EVIDENCE).write_text('{"better": true}')


def _remove(folder: Path) -> None:
    (folder / EVIDENCE).unlink()


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
        (_alter, Answer.REJECT, f"{EVIDENCE} was changed"),
        (_remove, Answer.REQUEST_CHANGES, f"{EVIDENCE} is missing"),
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
        ("{", "is not JSON"),
        ("[]", "Expected `object`"),
        ('{"schema": 2}', "use a newer modelmill"),
        ('{"model": "a"}', "missing required field"),
        ("[" * 100_000, "is not JSON"),
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
