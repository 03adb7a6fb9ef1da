from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from flows.observe.diff.comparison import Change, ChangeKind, Comparison, compare, measures
from flows.observe.diff.inputs import Made, input_changes
from flows.observe.diff.text import lines
from flows.observe.evidence import weaker
from matrix.model import PlannedModel
from matrix.status import Status
from state.records import Outcome, SweepInfo
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model

MODEL = "tiny/model:fill-mask"


def ran(harness: SweepHarness, stamp: str, *models: PlannedModel) -> SweepInfo:
    harness.sweep(make_plan(*models, stamp=stamp))
    assert harness.begun is not None
    return harness.begun.info


def both(
    harness: SweepHarness, before: list[PlannedModel], after: list[PlannedModel]
) -> Comparison:
    first, second = ran(harness, "20260609", *before), ran(harness, "20260610", *after)
    return compare(harness.state, first, second)


def one(comparison: Comparison, cell: str = f"{MODEL}@vitisai_npu") -> Change:
    return next(change for change in comparison.changes if change.cell == cell)


def failing(model: PlannedModel, stage: str = "quantize") -> PlannedModel:
    config = {**model.model.source.config, "act": {stage: "fail:QUANTIZE"}}
    entry = replace(model.model, source=replace(model.model.source, config=config))
    return with_entry(model, entry=entry)


def with_entry(model: PlannedModel, **changes: object) -> PlannedModel:
    entry = changes["entry"]
    cells = tuple(replace(cell, model=entry) for cell in model.cells)  # type: ignore[arg-type]
    return replace(model, model=entry, cells=cells)  # type: ignore[arg-type]


def test_the_same_content_under_another_stamp_is_unchanged(harness: SweepHarness) -> None:
    comparison = both(harness, [small_model()], [small_model()])
    assert {change.verdict for change in comparison.changes} == {ChangeKind.UNCHANGED}
    assert comparison.counts()["unchanged"] == 3
    assert list(lines(comparison)) == ["20260609 -> 20260610: 3 unchanged"]


def rung(name: str, passed: bool | None, **more: str) -> dict[str, object]:
    return {"name": name, "passed": passed, "detail": f"of {name}", **more}


PROVEN = {
    "rungs": [rung("loads", True), rung("parity", True)],
    "runtimes": [{"own": True, "ran": True}],
}


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (PROVEN, []),
        (None, []),
        ({**PROVEN, "runtimes": []}, ["own execution provider -> did not"]),
        (
            {**PROVEN, "rungs": [rung("loads", True), rung("parity", False, waived="no NPU")]},
            ["parity passed -> waived: no NPU"],
        ),
        (
            {**PROVEN, "rungs": [rung("loads", True), rung("parity", None)]},
            ["parity passed -> could not be run: of parity"],
        ),
        ({**PROVEN, "rungs": [rung("loads", True)]}, ["parity passed -> not tried"]),
    ],
)
def test_weaker_verification_is_told(after: dict[str, object] | None, told: list[str]) -> None:
    found = list(weaker(PROVEN, after))
    assert len(found) == len(told)
    assert all(text in line for text, line in zip(told, found, strict=True))
    assert list(weaker(after, PROVEN)) == []


def test_the_same_content_that_is_verified_less_is_no_unchanged_cell(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ran(harness, "20260609", small_model())
    second = ran(harness, "20260610", small_model())
    outcomes = harness.state.outcomes

    def proven(sweep_id: int, **named: Any) -> Iterator[Outcome]:
        for cell in outcomes(sweep_id, **named):
            less = sweep_id == second.id and cell.cell.endswith("@vitisai_npu")
            yield replace(cell, evidence={**PROVEN, "runtimes": []} if less else PROVEN)

    monkeypatch.setattr(
        type(harness.state), "outcomes", lambda _self, *args, **named: proven(*args, **named)
    )
    comparison = compare(harness.state, first, second)
    assert one(comparison).verdict is ChangeKind.VERIFIED_LESS
    assert comparison.counts()["unchanged"] == 2
    assert comparison.differs
    assert "    verification: ran on the target's own execution provider -> did not" in list(
        lines(comparison)
    )


def test_a_new_tool_is_named_once_with_the_stages_it_went_into(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ran(harness, "20260609", small_model())
    monkeypatch.setenv("FAKE_VERSION", "2")
    second = ran(harness, "20260610", small_model())
    change = one(compare(harness.state, first, second))
    assert change.verdict is ChangeKind.CHANGED
    assert [str(cause) for cause in change.inputs] == ["tool fake: 1 -> 2"]
    assert set(change.inputs[0].stages) == {"export", "inputs", "optimize", "quantize"}
    assert change.before is not None
    assert change.after is not None
    assert change.before.tree != change.after.tree


def test_another_source_is_named_and_not_what_follows_from_it(harness: SweepHarness) -> None:
    comparison = both(harness, [small_model()], [small_model(salt="other")])
    change = one(comparison)
    assert change.verdict is ChangeKind.CHANGED
    assert [(cause.origin, cause.name) for cause in change.inputs] == [("source", "content")]


def test_another_revision_is_shown_as_it_was_asked_for(harness: SweepHarness) -> None:
    model = small_model(salt="a")

    def at(revision: str, salt: str) -> PlannedModel:
        source = replace(model.model.source, revision=revision, config={"salt": salt})
        return with_entry(model, entry=replace(model.model, source=source))

    change = one(both(harness, [at("aaa", "a")], [at("bbb", "b")]))
    assert [str(cause) for cause in change.inputs][1] == "source revision: aaa -> bbb"


def test_another_commit_behind_the_same_revision_is_a_change_of_the_source() -> None:
    def made(commit: str) -> Made:
        params = {"opset": 17, "commit": commit}
        return Made({"export": {"params": params, "inputs": {"source": commit * 8}}}, {}, {})

    told = [str(cause) for cause in input_changes(made("a" * 40), made("b" * 40))]
    assert told == [
        f"source commit: {'a' * 40} -> {'b' * 40}",
        f"source content: {'a' * 320} -> {'b' * 320}",
    ]


def test_a_changed_policy_is_named(harness: SweepHarness) -> None:
    model = small_model()
    opset = tuple(replace(cell, policy=replace(cell.policy, opset=19)) for cell in model.cells)
    change = one(both(harness, [model], [replace(model, cells=opset)]))
    told = [str(cause) for cause in change.inputs]
    assert "policy opset: 17 -> 19" in told
    assert "parameter opset: 17 -> 19" in told


def test_what_fails_now_comes_first_and_says_why(harness: SweepHarness) -> None:
    comparison = both(harness, [small_model()], [failing(small_model(salt="other"))])
    change = comparison.changes[0]
    assert (change.cell, change.verdict) == (f"{MODEL}@vitisai_npu", ChangeKind.NOW_FAILS)
    text = "\n".join(lines(comparison))
    assert text.startswith("now fails (1)\n")
    assert "QUANTIZE: told to fail" in text
    assert comparison.counts()["changed"] == 2


def test_what_works_now_and_what_still_fails(harness: SweepHarness) -> None:
    comparison = both(
        harness,
        [failing(small_model("a/one")), failing(small_model("b/two"))],
        [small_model("a/one"), failing(small_model("b/two"))],
    )
    assert one(comparison, "a/one:fill-mask@vitisai_npu").verdict is ChangeKind.NOW_WORKS
    assert one(comparison, "b/two:fill-mask@vitisai_npu").verdict is ChangeKind.STILL_FAILS


def test_new_removed_and_skipped_cells(harness: SweepHarness) -> None:
    model = small_model("b/two")
    left_out = replace(
        model, cells=(replace(model.cells[0], skip="does not fit"), *model.cells[1:])
    )
    comparison = both(
        harness,
        [small_model("a/one"), left_out],
        [small_model("c/three"), model],
    )
    assert one(comparison, "a/one:fill-mask@mlas_cpu").verdict is ChangeKind.REMOVED
    assert one(comparison, "c/three:fill-mask@mlas_cpu").verdict is ChangeKind.NEW
    assert one(comparison, model.cells[0].id).verdict is ChangeKind.NEW


def test_what_is_skipped_in_both_is_not_there(harness: SweepHarness) -> None:
    model = small_model()
    left_out = replace(model, cells=(replace(model.cells[0], skip="no"), *model.cells[1:]))
    comparison = both(harness, [left_out], [left_out])
    assert len(comparison.changes) == 2


def test_an_unfinished_cell_is_no_failure_and_no_success(harness: SweepHarness) -> None:
    first = ran(harness, "20260609", small_model())
    harness.stop.ask()
    second = ran(harness, "20260610", small_model())
    comparison = compare(harness.state, first, second)
    assert {change.verdict for change in comparison.changes} == {ChangeKind.UNFINISHED}


def test_exports_count_only_where_they_fail(harness: SweepHarness) -> None:
    good = both(harness, [small_model()], [small_model(salt="other")])
    assert not any("@export" in change.cell for change in good.changes)
    bad = ran(harness, "20260611", failing(small_model(salt="third"), "export"))
    first = harness.state.find_sweep("20260609")
    assert first is not None
    failures = compare(harness.state, first, bad).of(ChangeKind.NOW_FAILS)
    assert f"{MODEL}@export" in {change.cell for change in failures}


def test_equal_inputs_with_different_bytes_are_called_what_they_are(harness: SweepHarness) -> None:
    first, second = ran(harness, "20260609", small_model()), ran(harness, "20260610", small_model())
    with harness.state.database.write() as connection:
        connection.exec_driver_sql(
            "UPDATE outcome SET tree = ? WHERE sweep_id = ? AND cell = ?",
            ("f" * 64, second.id, f"{MODEL}@vitisai_npu"),
        )
    change = one(compare(harness.state, first, second))
    assert change.verdict is ChangeKind.CHANGED
    assert not change.inputs
    assert "do not give the same bytes" in change.note


def test_what_was_built_elsewhere_says_so(
    harness: SweepHarness, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = SweepHarness(tmp_path_factory.mktemp("elsewhere"), feed=harness.feed)
    try:
        elsewhere.sweep(make_plan(small_model(salt="other")))
    finally:
        elsewhere.close()
    seeded = ran(harness, "20260609", small_model(salt="other"))
    assert harness.ran == []
    second = ran(harness, "20260610", small_model())
    change = one(compare(harness.state, seeded, second))
    assert change.verdict is ChangeKind.CHANGED
    assert "first sweep" in change.note


def test_reuse_does_not_look_like_a_gain_of_time(harness: SweepHarness) -> None:
    first, second = ran(harness, "20260609", small_model()), ran(harness, "20260610", small_model())
    change = one(compare(harness.state, first, second))
    assert change.before is not None
    assert change.after is not None
    assert change.before.seconds == change.after.seconds


def test_an_unchanged_cell_is_named_by_the_version_that_holds_it(harness: SweepHarness) -> None:
    first = ran(harness, "20260609", small_model())
    harness.sweep(make_plan(small_model(), stamp="20260610"), if_changed=True)
    assert harness.begun is not None
    assert harness.statuses()[f"{MODEL}@mlas_cpu"] is Status.UNCHANGED
    change = one(compare(harness.state, first, harness.begun.info))
    assert change.verdict is ChangeKind.UNCHANGED
    assert change.after is not None
    assert "20260609" in change.after.version


def test_measures_are_the_numbers_of_the_evidence() -> None:
    rungs: list[dict[str, Any]] = [
        {"name": "parity", "evidence": {"model.onnx": {"cosine": 0.5, "ran": True, "top": 3}}},
        {"name": "loads", "evidence": {"model.onnx": {"ir": 8, "outputs": {"y": [1, 4]}}}},
        {"name": "empty"},
    ]
    assert measures(rungs) == {
        "parity model.onnx cosine": 0.5,
        "parity model.onnx top": 3.0,
    }
    assert measures([]) == {}


def test_measured_differences_are_told() -> None:
    from flows.observe.diff.comparison import Side
    from flows.observe.diff.text import deltas

    def side(size: int, seconds: float, cosine: float) -> Side:
        return Side(
            status="published",
            version="v",
            tree="t",
            bytes=size,
            seconds=seconds,
            failure=None,
            message=None,
            measures={"parity cosine": cosine, "same": 1.0},
        )

    told = list(deltas(side(2_000_000, 10.0, 0.5), side(1_000_000, 15.0, 0.25)))
    assert told == [
        "size 2.0 MB -> 1.0 MB (-50.0%)",
        "time 10s -> 15s (+50.0%)",
        "parity cosine 0.5 -> 0.25",
    ]


def test_long_lists_are_cut_unless_everything_is_wanted(harness: SweepHarness) -> None:
    models = [small_model(f"many/m{number:02}", cells=2) for number in range(30)]
    comparison = both(harness, [small_model()], models)
    text = "\n".join(lines(comparison))
    assert "new (60)" in text
    assert "... and 10 more" in text
    assert "more" not in "\n".join(lines(comparison, everything=True))
