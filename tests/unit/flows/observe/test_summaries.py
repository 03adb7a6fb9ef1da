from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from flows.observe.summaries import clear_summaries, write_summaries
from flows.observe.summaries.document import SummaryDocument, summary_document
from flows.observe.summaries.junit import junit
from flows.observe.summaries.markdown import markdown
from flows.observe.summary import summarize
from flows.output.masking import masked_json
from flows.output.table import plain
from matrix.errors import Exit, UsageError
from matrix.status import Status
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model

HOSTILE = (
    "broke </testcase>\x00\x1b[31m <script>alert(1)</script> | `x` ]]> https://u:p4ssw@h \ud800"
)


def told(harness: SweepHarness, **flags: Any) -> SummaryDocument:
    bad = small_model("b/bad", act={"quantize": "fail:QUANTIZE"})
    skipped = (replace(bad.cells[0], skip="does not fit"), *bad.cells[1:])
    harness.sweep(make_plan(small_model("a/good"), replace(bad, cells=skipped)), slots=1, **flags)
    assert harness.begun is not None
    return summary_document(harness.state, harness.begun.info)


def cases(text: str) -> dict[str, ET.Element]:
    root = ET.fromstring(text.partition("\n")[2])
    return {f"{one.get('classname')}@{one.get('name')}": one for one in root.iter("testcase")}


def test_the_files_are_written_and_agree(harness: SweepHarness, tmp_path: Path) -> None:
    one = told(harness)
    folder = tmp_path / "deep" / "out"
    write_summaries(folder, one)
    assert sorted(path.name for path in folder.iterdir()) == [
        "junit.xml",
        "summary.json",
        "summary.md",
    ]
    document = json.loads((folder / "summary.json").read_text("utf-8"))
    assert document["exit_code"] == Exit.CELLS_FAILED
    assert document["counts"] == {"published": 4, "build_failed": 1, "skipped": 1}
    assert document["cells"] == 6
    statuses = {row["id"]: row["status"] for row in document["outcomes"]}
    assert statuses["b/bad:fill-mask@vitisai_npu"] == "build_failed"
    assert document["failures"][0]["hint"] == "do not tell it to"
    assert ET.parse(folder / "junit.xml").getroot().get("failures") == "1"
    assert "b/bad:fill-mask@vitisai_npu" in (folder / "summary.md").read_text("utf-8")


def test_every_cell_is_a_case_of_its_kind(harness: SweepHarness) -> None:
    found = cases(junit(told(harness)))
    assert len(found) == 6  # exports are no cells
    failure = found["b/bad:fill-mask@vitisai_npu"].find("failure")
    assert failure is not None
    assert failure.get("type") == "QUANTIZE"
    assert "next: do not tell it to" in (failure.text or "")
    skipped = found["b/bad:fill-mask@mlas_cpu"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "does not fit"
    assert len(found["a/good:fill-mask@vitisai_npu"]) == 0


def test_an_interrupted_sweep_never_looks_green(harness: SweepHarness) -> None:
    harness.stop.ask()
    one = told(harness)
    root = ET.fromstring(junit(one).partition("\n")[2])
    assert root.get("errors") == "5"
    assert (root.get("tests"), root.get("skipped")) == ("6", "1")
    assert "modelmill resume" in markdown(one)
    assert one.to_json()["exit_code"] == Exit.INTERRUPTED


def test_verified_is_an_end_only_where_nothing_is_published(harness: SweepHarness) -> None:
    one = told(harness, no_publish=True)
    assert {row.status for row in one.outcomes} >= {Status.VERIFIED}
    assert ET.fromstring(junit(one).partition("\n")[2]).get("errors") == "0"


def test_foreign_text_breaks_neither_xml_nor_markdown(harness: SweepHarness) -> None:
    one = told(harness)
    rows = [
        replace(row, message=HOSTILE, log_tail=HOSTILE, hint=HOSTILE) if row.failure else row
        for row in one.outcomes
    ]
    summary = summarize(one.info.stamp, one.info.feed, rows, publish=True)
    hostile = replace(one, outcomes=rows, summary=summary)
    text = junit(hostile)
    assert "p4ssw" not in text
    failure = cases(text)["b/bad:fill-mask@vitisai_npu"].find("failure")
    assert failure is not None
    assert "</testcase>" in (failure.text or "")
    table = [line for line in markdown(hostile).splitlines() if "vitisai" in line]
    assert len(table) == 1
    assert "<script>" not in table[0].replace("\\<", "")
    assert table[0].replace("\\|", "").count("|") == 7


def test_names_that_are_hostile_break_neither_of_the_three(
    harness: SweepHarness, tmp_path: Path
) -> None:
    one = told(harness)
    name = f'"><![CDATA[{HOSTILE}\n& é 🙂 \ufffe'
    rows = [
        replace(row, cell=f"{name}@{row.target}", model=name, package=name, version=name)
        for row in one.outcomes
    ]
    summary = summarize(name, name, rows, publish=True)
    hostile = replace(one, outcomes=rows, summary=summary)
    (tmp_path / "junit.xml").write_text(junit(hostile), "utf-8")
    suite = ET.parse(tmp_path / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("name") or "").startswith('"><![CDATA[broke </testcase> <script>')
    found = suite.findall("testcase")
    assert {case.get("classname") for case in found} == {suite.get("name")}
    assert len(found) == 6
    written = json.loads(json.dumps(masked_json(hostile.to_json())))
    assert written["outcomes"][0]["package"] == masked_json(name)
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(markdown(hostile))
    kinds = Counter(token.type for token in tokens)
    assert kinds["html_block"] == 0
    assert kinds["table_open"] == 2
    inline = [child for token in tokens for child in token.children or ()]
    assert not [child for child in inline if child.type in {"html_inline", "image", "link_open"}]


def test_suites_of_models_add_up(harness: SweepHarness) -> None:
    root = ET.fromstring(junit(told(harness)).partition("\n")[2])
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(name, "")) == sum(int(suite.get(name, "")) for suite in root)
    for suite in root:
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        assert all(float(case.get("time", "")) >= 0 for case in suite.iter("testcase"))


def test_markdown_of_many_causes_is_cut(harness: SweepHarness) -> None:
    one = told(harness)
    many = replace(one.summary, groups=one.summary.groups * 150)
    text = markdown(replace(one, summary=many))
    assert "... and 50 more causes." in text
    assert text.count("QUANTIZE") == 100


def test_plain_text_stays_plain() -> None:
    assert plain("a*b\n|c|") == "a\\*b \\|c\\|"


def test_what_an_earlier_run_left_is_not_taken_for_this_one(tmp_path: Path) -> None:
    for name in ("summary.json", "summary.md", "junit.xml", "other.txt"):
        (tmp_path / name).write_text("old")
    clear_summaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["other.txt"]


def test_a_folder_that_cannot_be_is_found_early(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="--summary"):
        clear_summaries(tmp_path / "file")
