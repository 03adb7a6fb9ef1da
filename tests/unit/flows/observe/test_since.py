"""What changed since the sweep before: in the summary of a sweep, wherever it was made."""

from __future__ import annotations

from pathlib import Path

import pytest

from feed.azure.address import package_page
from flows.observe.status import print_status
from flows.observe.summaries.document import summary_document
from flows.observe.summaries.markdown import markdown
from flows.observe.sweep_data import earlier_sweeps
from state.records import SweepInfo
from state.state import State, open_state
from tests.states.reported import reported
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


def test_a_summary_tells_what_is_news(harness: SweepHarness) -> None:
    bad = {"quantize": "fail:QUANTIZE"}
    harness.sweep(
        make_plan(small_model("same"), small_model("other"), small_model("broke"), stamp="n1")
    )
    harness.sweep(
        make_plan(
            small_model("same"),
            small_model("other", size=99),
            small_model("broke", salt=2, act=bad),
            small_model("fresh"),
            stamp="n2",
        )
    )
    assert harness.begun is not None
    told = summary_document(harness.state, harness.begun.info)
    assert told.since is not None
    assert told.since.before == "n1"
    document = told.to_json()["since"]
    assert document["counts"]["unchanged"] == 3
    assert {one["verdict"] for one in document["cells"]} >= {"new", "changed", "now fails"}
    assert not [one for one in document["cells"] if one["verdict"] == "unchanged"]
    text = markdown(told)
    assert "## Since n1" in text
    assert "- now fails: `broke:fill-mask@" in text
    assert "`same:fill-mask@" not in text.partition("## Since")[2]


def test_the_first_sweep_has_none_before_it(harness: SweepHarness) -> None:
    harness.sweep(make_plan(small_model(), stamp="n1"))
    assert harness.begun is not None
    told = summary_document(harness.state, harness.begun.info)
    assert told.since is None
    assert told.to_json()["since"] is None
    assert "Since" not in markdown(told)


def test_a_failure_says_since_which_sweep(
    harness: SweepHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"quantize": "fail:QUANTIZE"}
    for stamp, failing in {"n1": (), "n2": ("broke",), "n3": ("broke", "late")}.items():
        acts = {name: bad if name in failing else {} for name in ("broke", "late")}
        models = [small_model(name, salt=stamp + name, act=act) for name, act in acts.items()]
        harness.sweep(make_plan(*models, stamp=stamp))
    assert harness.begun is not None
    told = summary_document(harness.state, harness.begun.info)
    assert list(told.failing.values()) == ["n2"]
    (group,) = told.summary.groups
    assert told.since_when(group) == "since n2, 1 new"
    assert "| since n2, 1 new |" in markdown(told)
    outcomes = list(told.outcomes)
    print_status(harness.state, told.info, told.summary, outcomes, failed_only=True)
    assert "  since n2, 1 new\n" in capsys.readouterr().out
    assert reported(harness.state, told.info)["failures"][0]["since"] == "since n2, 1 new"


def begun(state: State, stamp: str, feed: str = "f", **kind: object) -> SweepInfo:
    settings, selection = {"catalog": kind.get("catalog", "c")}, {"only": kind.get("only", [])}
    info = state.begin(stamp, feed, [], {}, settings, selection)
    if not kind.get("running"):
        state.end(info.id, 0)
    return state.find_sweep(stamp, feed) or info


def test_only_a_sweep_of_the_same_kind_that_ended_is_compared_with(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db") as state:
        first = begun(state, "n1")
        begun(state, "elsewhere", feed="g")
        begun(state, "less", only=["a*"])
        begun(state, "other", catalog="d")
        begun(state, "now", running=True)
        last = begun(state, "n2")
        assert earlier_sweeps(state, last) == [first]
        assert earlier_sweeps(state, first) == []
        begun(state, "n3")
        assert earlier_sweeps(state, last) == [first]


def test_only_feeds_with_pages_are_linked() -> None:
    project = "azure:https://dev.azure.com/org/my%20project/feed"
    assert package_page(project, "modelmill-index", "0.0.0-n1") == (
        "https://dev.azure.com/org/my%20project/_artifacts/feed/feed/UPack/modelmill-index"
        "/overview/0.0.0-n1"
    )
    assert package_page("azure:https://dev.azure.com/org/_artifacts/feed/f", "p", "1") == (
        "https://dev.azure.com/org/_artifacts/feed/f/UPack/p/overview/1"
    )
    assert package_page("dir:/feed", "p", "1") is None
