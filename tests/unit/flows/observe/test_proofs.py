"""Wherever verification is told, the samples are told that it rests on, and the agreement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from flows.observe.diff.comparison import ChangeKind, compare
from flows.observe.diff.text import lines
from flows.observe.evidence import Where, run_on
from flows.observe.status import print_status
from flows.observe.summaries.document import SummaryDocument, summary_document
from flows.observe.summaries.junit import junit
from flows.observe.summaries.markdown import markdown
from flows.observe.summary import summary_of
from matrix.status import Status
from state.records import Facts, SweepInfo
from tests.states.reported import reported
from tests.states.samples import begin, cell, take
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from tests.verification.evidence import proven

REAL = "16 processor samples, 24.5 dB, 98.0% agree"
EMULATED = "QNNExecutionProvider npu (emulated)"
IN_PLACE = "ONNX Runtime CPU in place of its own provider"
CPU_RUN = {"name": "CPUExecutionProvider cpu", "own": False, "ran": True}
OWN_RUN = {"name": EMULATED, "own": True, "ran": True, "emulated": True}
NOT_RUN = {"own": True, "not_run": "openvino is not installed"}
ACCEPTED = "synthetic samples (accepted: a private sensor)"


@pytest.fixture
def verified(harness: SweepHarness) -> SweepInfo:
    """A sweep with a cell on real samples, and one on accepted synthetic ones."""
    info = begin(harness.state)
    lease = take(harness.state, info)
    kinds = {
        "qnn_npu": proven("processor"),
        "mlas_cpu": proven("synthetic", reason="a private sensor"),
    }
    ran = {"qnn_npu": [CPU_RUN, OWN_RUN], "mlas_cpu": [CPU_RUN, NOT_RUN]}
    for target, rungs in kinds.items():
        evidence = {"rungs": rungs, "runtimes": ran[target]}
        for status in ("building", "built", "verifying", "verified"):
            facts = Facts(evidence=evidence)
            harness.state.record(lease, info.id, cell(0, target), Status(status), facts)
    return info


@pytest.fixture
def document(harness: SweepHarness, verified: SweepInfo) -> SummaryDocument:
    return summary_document(harness.state, verified)


def test_status_has_them_beside_the_cell(
    harness: SweepHarness, verified: SweepInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = list(harness.state.outcomes(verified.id))
    summary = summary_of(harness.state, verified, outcomes)
    print_status(harness.state, verified, summary, outcomes, failed_only=False)
    told = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert told[cell(0, "qnn_npu")].endswith(f" on {EMULATED}; {REAL}")
    assert f" on {IN_PLACE}; 16 {ACCEPTED}" in told[cell(0, "mlas_cpu")]


def test_a_report_has_them_in_each_cell_and_in_its_totals(
    harness: SweepHarness, verified: SweepInfo
) -> None:
    made = reported(harness.state, verified)
    told = {one["id"]: one["proof"]["told"] for one in made["cells"] if "proof" in one}
    assert told[cell(0, "qnn_npu")] == REAL
    assert told[cell(0, "mlas_cpu")].startswith(f"16 {ACCEPTED}")
    shown = {one["id"]: one["proof"] for one in made["cells"] if "proof" in one}
    assert (shown[cell(0, "qnn_npu")]["kind"], shown[cell(0, "qnn_npu")]["figure"]) == (
        "processor", "98%",
    )  # fmt: skip
    assert shown[cell(0, "mlas_cpu")]["kind"] == "synthetic"
    ran = {one["id"]: one["run_on"] for one in made["cells"] if "run_on" in one}
    assert ran[cell(0, "qnn_npu")] == {"name": EMULATED, "where": Where.EMULATED}
    assert ran[cell(0, "mlas_cpu")]["why"] == NOT_RUN["not_run"]
    (every,) = (one for one in made["rates"] if not {"priority", "column"} & one.keys())
    assert every["samples"] == {"processor samples": 1, ACCEPTED: 1}
    assert every["where"] == {Where.EMULATED: 1, Where.IN_PLACE: 1}
    (npu,) = (one for one in made["rates"] if "priority" not in one and one.get("column") == 0)
    assert npu["where"] == {Where.EMULATED: 1}


def test_summaries_have_them(document: SummaryDocument) -> None:
    found = {one["id"]: one["samples"] for one in document.to_json()["outcomes"]}
    assert found[cell(0, "qnn_npu")]["kind"] == "processor"
    assert found[cell(0, "qnn_npu")]["agreement"] == 0.98
    assert found[cell(0, "mlas_cpu")]["accepted"] == "a private sensor"
    ran = {one["id"]: one["run_on"] for one in document.to_json()["outcomes"]}
    assert ran[cell(0, "qnn_npu")] == EMULATED
    assert ran[cell(0, "mlas_cpu")] == IN_PLACE
    root = ET.fromstring(junit(document).partition("\n")[2])
    properties = {(one.get("name"), one.get("value")) for one in root.iter("property")}
    assert {("verified on", REAL), ("run on", EMULATED), ("run on", IN_PLACE)} <= properties
    assert f"| {EMULATED} | processor samples | 1 | 24.5 dB | 98.0% |" in markdown(document)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], None),
        ([NOT_RUN], None),
        ([{**CPU_RUN, "own": True}], "CPUExecutionProvider cpu"),
        ([CPU_RUN, {**OWN_RUN, "ran": False, "why": "it took no node"}], IN_PLACE),
        ([7, None], None),
    ],
)
def test_a_cell_says_on_what_it_was_verified(runs: list[Any], said: str | None) -> None:
    found = run_on({"runtimes": runs})
    assert (str(found) if found else None) == said


def test_another_kind_of_samples_is_a_difference(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.sweep(make_plan(small_model("a/good")))
    first = harness.state.find_sweep("20260609")
    harness.sweep(make_plan(small_model("a/good", salt="new"), stamp="20260610"))
    second = harness.state.find_sweep("20260610")
    assert first is not None
    assert second is not None
    outcomes = harness.state.outcomes

    def judged(sweep_id: int, **named: Any) -> Iterator[Any]:
        kind = "processor" if sweep_id == first.id else "synthetic"
        for one in outcomes(sweep_id, **named):
            yield replace(one, evidence={"rungs": proven(kind)})

    monkeypatch.setattr(
        type(harness.state), "outcomes", lambda _self, *args, **named: judged(*args, **named)
    )
    found = compare(harness.state, first, second)
    assert {change.verdict for change in found.changes} == {ChangeKind.CHANGED}
    assert "    verified on processor samples -> synthetic samples" in list(lines(found))
