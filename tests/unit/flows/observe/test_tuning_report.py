"""What the report of a tuning tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.tune.document import document
from flows.tune.page import html, markdown, write
from matrix.hypotheses import Hypothesis
from state.state import open_state
from tests.tunings.fakes import BASE, NAME, Stage, cell, hypothesis, step

MS = 1_000_000


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    times = {BASE: 1.0, 19: 0.8, 20: 1.0, 21: 2.0}
    built = {f"opset{opset}": round(ms * MS) for opset, ms in times.items()}
    steps = [step(hypothesis(opset)) for opset in times if opset != BASE]
    steps[1] = step(hypothesis(20), skip="the graph has no Conv", finding="cpu-003")
    with open_state(tmp_path / "state.db") as state:
        yield Stage(state, cell(tmp_path), built, steps)


def test_all_of_a_tuning_is_told(stage: Stage, tmp_path: Path) -> None:
    stage.begin()
    told = document(NAME, [stage.run()])
    (one,) = told.tunings
    assert one.champion == "opset-19"
    assert "opset-19 is 20.0 % faster" in one.conclusion
    assert {row.key: row.verdict for row in one.trials} == {
        "opset-19": "better", "opset-21": "worse",
    }  # fmt: skip
    (skipped,) = one.skipped
    assert (skipped.key, skipped.why, skipped.finding) == (
        "opset-20", "the graph has no Conv", "cpu-003",
    )  # fmt: skip
    text = markdown(told)
    assert "opset-19 (champion) | better | +20.0" in text
    assert "| opset-20 | the graph has no Conv | cpu-003 |" in text
    paths = write(told, tmp_path / "out")
    assert [path.name for path in paths] == [f"{NAME}.html", f"{NAME}.md", f"{NAME}.json"]
    assert json.loads(paths[2].read_text("utf-8"))["tunings"][0]["champion"] == "opset-19"
    assert write(told, tmp_path / "out") == paths
    later = write(replace(told, tunings=()), tmp_path / "out")
    assert [path.name for path in later] == [f"{NAME}-r2.{one}" for one in ("html", "md", "json")]
    assert json.loads(paths[2].read_text("utf-8"))["tunings"]
    assert write(told, tmp_path / "out") == paths


def test_names_of_models_are_text_to_the_page(tmp_path: Path) -> None:
    evil = Hypothesis(
        id="x", title="</script><script>alert(1)</script>", targets=("*",), axis="opset", opset=19
    )
    with open_state(tmp_path / "state.db") as state:
        one = Stage(state, cell(tmp_path), {"opset17": MS, "opset19": MS}, [step(evil)])
        one.begin()
        page = html(document(NAME, [one.run()]))
    assert "<script>alert" not in page
    assert "default-src 'none'" in page.replace("&#x27;", "'")
