from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from flows.observe import status
from flows.observe.failures import MOST_MODELS, common_text, group_failures, in_passing
from flows.observe.progress import SweepProgress
from flows.observe.summaries.document import summary_document
from flows.observe.summaries.junit import junit
from flows.observe.summaries.markdown import markdown
from flows.observe.summary import summarize
from flows.output.meanings import CAUSES
from matrix.errors import Exit
from matrix.status import FailureClass, Status
from state.records import Outcome
from tests.states.reported import reported
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


def failed(
    model: str = "org/resnet-50:image-classification",
    target: str = "qnn_npu",
    message: str = "no scale",
    failure: FailureClass = FailureClass.QUANTIZE,
    hint: str = "",
) -> Outcome:
    return Outcome(
        sweep_id=1,
        cell=f"{model}@{target}",
        model=model,
        target=target,
        precision="w8a16",
        package="modelmill-x",
        version="0.0.0-s-x",
        needs=(),
        status=Status.BUILD_FAILED,
        tree=None,
        failure=failure,
        stage="s",
        exit_code=None,
        message=message,
        hint=hint,
        log_tail="first\nlast words",
        retryable=False,
        attempts=1,
        token=1,
        started_at=1.0,
        ended_at=2.0,
        published_at=None,
        bytes=None,
        seconds=None,
        evidence=None,
        detail=None,
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/tmp/work-1/model.onnx is damaged", "C:\\work\\a.onnx is damaged"),
        ("needs 1.5 GB, 900 MB are free", "needs 12 GB, 3 MB are free"),
        ("no weight 0x7f3a9c001234", "no weight 0x7f3a9c00abcd"),
        ("blob 3f786850e387 is gone", "blob 89e6c98d92887913 is gone"),
        ("took 12.5s", "took 900.0s"),
        ("boom", "boom (the same run failed for org/resnet-50:image-classification@export)"),
        (
            "parity: logits on ort cpu: signal-to-noise ratio 9.1 dB; must reach",
            "parity: a on b: signal-to-noise ratio 1 dB; c d on e: 90% agree; must reach",
        ),
    ],
)
def test_what_differs_from_cell_to_cell_does_not_part_failures(one: str, other: str) -> None:
    (group,) = group_failures([failed(message=one), failed(target="ov_npu", message=other)])
    assert len(group.cells) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'bert' is not supported", "'gpt2' is not supported"),
        ("the operator Einsum is unknown", "the operator Scan is unknown"),
    ],
)
def test_what_a_failure_is_about_parts_it_from_others(one: str, other: str) -> None:
    assert len(group_failures([failed(message=one), failed(target="x", message=other)])) == 2


def test_the_same_words_of_another_class_are_another_cause() -> None:
    other = failed(target="ov_npu", failure=FailureClass.OPTIMIZE)
    assert len(group_failures([failed(), other])) == 2


def test_a_cells_own_names_are_no_part_of_its_cause() -> None:
    models = ("org/resnet-50:image-classification", "microsoft/resnet-18:image-classification")
    texts = {
        common_text(failed(name, message=text.replace("MODEL", name)))
        for name in models
        for text in ("MODEL@qnn_npu for qnn_npu at w8a16 in modelmill-x",)
    }
    assert len(texts) == 1


def test_a_model_named_like_a_word_takes_no_word_out_of_messages() -> None:
    rows = [failed("a/model:t", message="no model"), failed("a/other-1:t", message="no model")]
    assert len(group_failures(rows)) == 1


def test_a_line_tells_class_extent_models_and_next_step() -> None:
    rows = [failed(f"org/m-{n}:t", t) for n in range(5) for t in ("export", "a", "b")]
    one = failed("org/single:t", message="boom", failure=FailureClass.CRASH, hint="do this")
    first, second = group_failures([*rows, one])
    assert first.lines() == [
        "  QUANTIZE  10 cells of 5 models (org/m-0:t, org/m-1:t, org/m-2:t and 2 more): no scale",
        f"    next: {CAUSES[FailureClass.QUANTIZE].next_step}",
    ]
    assert len(first.exports) == 5
    assert first.extent.count(":t") == MOST_MODELS
    assert second.lines() == ["  CRASH  org/single:t@qnn_npu: boom", "    next: do this"]


def test_messages_that_differ_are_told_as_an_example() -> None:
    rows = [failed(message="took 1 s"), failed(target="b", message="took 2 s")]
    assert group_failures(rows)[0].text == "for example: took 1 s"


def test_exports_alone_are_told_as_what_they_are() -> None:
    (one,) = group_failures([failed("org/a:t", "export")])
    (two,) = group_failures([failed("org/a:t", "export"), failed("org/b:t", "export")])
    assert one.extent == "the export of org/a:t"
    assert two.extent == "2 exports of 2 models (org/a:t, org/b:t)"


def test_many_causes_are_cut_with_the_command_that_tells_them_all() -> None:
    rows = [failed(f"org/m{n}:t", message=f"no {'x' * (n + 1)}") for n in range(30)]
    lines = summarize("s", "dir:f", rows, publish=True).lines()
    assert lines[-1] == "  ... and 10 more causes: modelmill status s --failed"
    assert len(lines) == 1 + 2 * 20 + 1


def test_every_output_counts_the_same_cells(harness: SweepHarness) -> None:
    """An export that fails takes its three cells with it: three failed, wherever one looks."""
    bad = small_model("b/bad", act={"export": "fail:EXPORT"})
    summary = harness.sweep(make_plan(small_model("a/good"), bad))
    assert harness.begun is not None
    info = harness.begun.info
    told = summary_document(harness.state, info)
    report = reported(harness.state, info)
    document = told.to_json()
    suites = ET.fromstring(junit(told).partition("\n")[2])
    progress = SweepProgress(harness.state.statuses(info.id))

    assert document["exports"] == {"failed": 1, "open": 0}
    assert [len(cause["cells"]) for cause in document["causes"]] == [3]
    assert {
        "terminal": summary.counts["build_failed"],
        "progress": progress.failed,
        "json": document["failed"],
        "failures": len(document["failures"]),
        "junit": int(suites.get("failures", "")),
        "report": report["totals"]["failed"],
        "grouped": sum(len(one["cells"]) for one in report["failures"]),
    } == dict.fromkeys(
        ("terminal", "progress", "json", "failures", "junit", "report", "grouped"), 3
    )
    assert {int(suites.get("tests", "")), document["cells"], report["totals"]["cells"]} == {6}
    assert "## Failures (3 cells)" in markdown(told)
    causes = [one.get("value", "") for one in suites.iter("property")]
    assert len(causes) == 1
    assert causes[0].startswith("EXPORT 3 cells of b/bad:fill-mask: ")


def test_an_export_that_fails_alone_is_seen_everywhere(harness: SweepHarness) -> None:
    one = small_model("a/good")
    harness.sweep(make_plan(one))
    assert harness.begun is not None
    told = summary_document(harness.state, harness.begun.info)
    rows = [
        replace(row, status=Status.PUBLISH_FAILED, failure=FailureClass.PUBLISH, message="full")
        if row.target == "export"
        else row
        for row in told.outcomes
    ]
    summary = summarize("s", "f", rows, publish=True)
    assert summary.exit_code() == Exit.CELLS_FAILED
    assert summary.failures == ()
    assert summary.lines()[1] == "  PUBLISH  the export of a/good:fill-mask: full"
    broken = replace(told, outcomes=rows, summary=summary)
    suites = ET.fromstring(junit(broken).partition("\n")[2])
    assert (suites.get("failures"), suites.get("errors")) == ("0", "1")
    assert "| PUBLISH | 1 export | `a/good:fill-mask` |" in markdown(broken)


def test_status_failed_tells_each_cause_once_with_one_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [failed(f"org/m-{n}:t", message=f"boom at /tmp/{n}") for n in range(400)]
    status.print_causes(summarize("s", "f", rows, publish=True), rows)
    out = capsys.readouterr().out
    assert out.count("last words") == 1
    assert out.count("boom at") == 1
    assert "400 cells of 400 models" in out
    assert "... and 380 more: modelmill status s --json" in out
    assert len(out.splitlines()) < 30


def test_a_line_of_a_cell_does_not_repeat_what_was_said_of_another() -> None:
    assert in_passing("EXPORT", "boom (the same run failed for a/b:t@export)") == (
        "EXPORT as a/b:t@export"
    )
    assert in_passing("EXPORT", "boom\nbang") == "EXPORT boom bang"
