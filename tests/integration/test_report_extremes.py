"""The report in Chromium where something is odd: hostile text, no cells, no logs, a comparison."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flows.observe.diff.comparison import ChangeKind
from flows.report.page import write
from matrix.status import FailureClass, Status
from state.records import Facts, StageRun, SweepInfo
from state.state import State, open_state
from tests.services.chromium import launched, opened
from tests.states.reported import reported
from tests.states.samples import ALIVE, begin, cell, rows, take
from tests.sweeps.command import Project, model

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EVIL = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`${alert(3)}"
    "<!--\u2028\u202e\x1b[31m\\u003c]]>%s {{constructor.constructor('alert(4)')()}}"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as made:
        yield made


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with open_state(tmp_path / "state.db") as made:
        yield made


def failed(state: State) -> SweepInfo:
    info = begin(state)
    facts = Facts(
        failure=FailureClass.QUANTIZE,
        stage="quantize",
        message="no scale",
        log_tail="last words",
        evidence={"rungs": [{"name": "loads", "passed": False, "detail": "x", "evidence": {}}]},
    )
    stage = StageRun(cell(), "qnn_npu", "export", "k", {"inputs": {"source": "s"}})
    lease = take(state, info)
    state.record(lease, info.id, cell(), Status.BUILDING, stages=[stage])
    state.record(lease, info.id, cell(), Status.BUILD_FAILED, facts)
    return info


def poisoned(made: dict[str, Any]) -> dict[str, Any]:
    """Every text that is not ours, replaced; an id in the grid has to stay one."""
    texts = ("precision", "package", "version", "tree", "stage", "message", "hint")
    cells = [
        {
            **one,
            **dict.fromkeys(texts, EVIL),
            "log": 0,
            "policy": 0,
            "rungs": [{"name": EVIL, "passed": False, "detail": EVIL, "evidence": {EVIL: EVIL}}],
            "detail": {"same_as": EVIL},
            "stages": [one | {"stage": EVIL, "component": EVIL} for one in one.get("stages", [])],
            "steps": [one | {"what": EVIL, "why": EVIL} for one in one.get("steps", [])],
        }
        for one in made["cells"]
    ]
    cells[0] |= {"id": f"{EVIL}@qnn_npu", "failure": EVIL}
    named = ("id", "name", "task", "priority", "group", "type")
    grid = [
        {
            **row,
            **dict.fromkeys(named, EVIL),
            "source": {"kind": EVIL, "ref": EVIL},
            "content": {"digest": EVIL},
        }
        for row in made["rows"]
    ]
    places = ("stamp", "feed", "state", "verdict")
    heading = made["heading"] | dict.fromkeys(places, EVIL) | {"settings": {EVIL: [EVIL]}}
    compared = {
        "before": EVIL,
        "after": EVIL,
        "counts": {EVIL: 1},
        "meanings": {EVIL: EVIL},
        "changes": [
            {
                "cell": EVIL,
                "verdict": EVIL,
                "note": EVIL,
                "inputs": [{"origin": EVIL, "name": EVIL, "before": EVIL, "after": EVIL}],
                "after": {"failure": EVIL, "message": EVIL, "status": EVIL},
                "deltas": [EVIL],
            }
        ],
    }
    causes = {"failure": EVIL, "text": EVIL, "hint": EVIL}
    return made | {
        "heading": heading,
        "cells": cells,
        "rows": grid,
        "columns": [column | {"label": EVIL, "ep": EVIL} for column in made["columns"]],
        "policies": [{EVIL: EVIL, "notices": [EVIL]}],
        "keys": [EVIL for _ in made["keys"]],
        "owners": [EVIL for _ in made["owners"]],
        "logs": [EVIL],
        "failures": [one | causes for one in made["failures"]],
        "rates": [one | {"priority": EVIL, "level": EVIL} for one in made["rates"]],
        "comparison": compared,
    }


def test_text_of_others_is_only_ever_text(browser: Browser, state: State, tmp_path: Path) -> None:
    page_file = tmp_path / "evil.html"
    write(poisoned(reported(state, failed(state))), page_file)
    for page in opened(browser, page_file.as_uri()):
        page.click("#grid .gcell >> nth=0")
        for summary in page.query_selector_all("#panel summary, #filters summary"):
            summary.click()
        tags = "tag => document.querySelectorAll(tag).length"
        assert page.evaluate(tags, "script") == 2
        assert page.evaluate(tags, "img, iframe, object, embed") == 0
        assert "onerror=alert(2)" in page.inner_text("#panel")
        assert "onerror=alert(2)" in page.inner_text("#compared")
        assert page.title().startswith("sweep </script><script>alert(1)")


def test_a_sweep_without_cells(browser: Browser, state: State, tmp_path: Path) -> None:
    info = state.begin("empty", "feed", [], {}, {}, {})
    write(reported(state, info), tmp_path / "empty.html")
    for page in opened(browser, (tmp_path / "empty.html").as_uri()):
        assert page.inner_text("#grid .nothing") == "this sweep has no cells"
        assert page.inner_text("#shown") == "0 in 0 models"
        for key in ("n", "p", "/", "Escape", "Tab"):
            page.keyboard.press(key)
        assert page.is_hidden("#panel")


def test_a_sweep_that_only_began(browser: Browser, state: State, tmp_path: Path) -> None:
    write(reported(state, begin(state)), tmp_path / "new.html")
    for page in opened(browser, f"{(tmp_path / 'new.html').as_uri()}#status=planned"):
        assert page.inner_text("#verdict") == "running or interrupted"
        page.keyboard.press("n")
        text = page.inner_text("#panel")
        assert "planned to be built" in text
        assert "Stages" not in text
        assert "Nothing was built" in page.inner_text("#workers")


def test_a_comparison_can_be_looked_through(browser: Browser, state: State, tmp_path: Path) -> None:
    def swept(stamp: str, ends: list[tuple[str, Status, str]]) -> SweepInfo:
        cells = [row for row in rows(9, stamp=stamp) if row.cell in {one[0] for one in ends}]
        info = begin(state, cells, stamp=stamp)
        for name, status, tree in ends:
            lease = state.lease(info.id, ALIVE, 60.0)
            assert lease is not None
            assert name.startswith(lease.model)
            parts = {"tools": {"torch": tree}, "inputs": {"source": "s"}}
            key = f"{stamp}{name}{tree}"
            stage = StageRun(name, "qnn_npu", "export", key, parts, seconds=2.0)
            state.record(lease, info.id, name, Status.BUILDING, stages=[stage])
            cosine = {"model.onnx": {"cosine": 0.9 if tree == "a" else 0.95}}
            rungs = [{"name": "parity", "passed": True, "evidence": cosine}]
            facts = Facts(tree=tree * 64, bytes=1000 if tree == "a" else 2000, message="why")
            state.record(lease, info.id, name, status, replace(facts, evidence={"rungs": rungs}))
            state.release(lease, done=True)
        state.end(info.id, 0)
        return info

    good, bad = Status.PUBLISHED, Status.BUILD_FAILED
    names = [cell(number) for number in range(9)]
    before = [
        (names[0], good, "a"),
        (names[1], bad, "a"),
        (names[2], bad, "a"),
        (names[3], good, "a"),
        (names[4], good, "a"),
        (names[6], good, "a"),
    ]
    after = [
        (names[0], bad, "b"),
        (names[1], good, "a"),
        (names[2], bad, "a"),
        (names[3], good, "b"),
        (names[5], good, "a"),
        (names[6], good, "a"),
    ]
    first, second = swept("20260609", before), swept("20260610", after)
    write(reported(state, second, first), tmp_path / "diff.html")
    for page in opened(browser, (tmp_path / "diff.html").as_uri()):
        box = page.locator("#compared")
        shown = box.locator(".chips button").all_inner_texts()
        assert shown == [
            f"1 {one}"
            for one in ChangeKind
            if one not in {ChangeKind.UNFINISHED, ChangeKind.VERIFIED_LESS}
        ]
        table = box.locator("tbody tr")
        assert table.count() == 6
        box.locator('[data-verdict="changed"]').click()
        assert table.count() == 1
        text = table.inner_text()
        for part in (names[3], "tool torch: a → b", "size 1.0 kB -> 2.0 kB (+100.0%)", "cosine"):
            assert part in text
        box.locator('[data-verdict="now fails"]').click()
        assert "why" in table.inner_text()
        table.get_by_role("button").click()
        assert page.inner_text("#p-title") == names[0]
        box.locator('[data-verdict="unchanged"]').click()
        assert "only counted" in box.inner_text()


def test_a_report_needs_neither_logs_nor_feed_nor_catalog(
    browser: Browser, project: Project, tmp_path: Path
) -> None:
    catalog = project.catalog(model("tiny/bad", act={"quantize": "fail:QUANTIZE"}))
    assert project.run("sweep", catalog, "--stamp", "s", "--target", "qnn_npu").code == 1
    for place in ("logs", "feed", "store", "evidence"):
        shutil.rmtree(project.home / place, ignore_errors=True)
    (project.folder / catalog).unlink()
    project.ok("report", "s", "-o", "report.html")
    for page in opened(browser, (project.folder / "report.html").as_uri()):
        page.fill("#text", "QUANTIZE")
        page.keyboard.press("Tab")
        page.click("#grid .gcell:not(.miss)")
        text = page.inner_text("#panel")
        for part in (
            "told to fail",
            "Next step: do not tell it to",
            "precision\nw8a16",
            "QUANTIZE",
        ):
            assert part in text
    assert json.loads(project.ok("status", "s", "--json").out)["counts"] == {"build_failed": 1}
