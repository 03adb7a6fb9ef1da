"""A sweep that ended without its index is told as incomplete everywhere, with the next step."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from feed.interface import Feed
from flows.cli.main import main
from flows.observe.summaries.document import summary_document
from flows.observe.summaries.junit import junit
from flows.observe.summaries.markdown import markdown
from flows.stop import Stop
from flows.sweep.lifecycle import Sweep
from matrix.codec import to_json
from matrix.errors import Exit
from state.records import SweepInfo
from tests.fakes.feed import Fault, FlakyFeed
from tests.states.samples import DEAD, sql
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model

PLAN = make_plan(small_model(cells=1))
NEXT = "modelmill resume"


def without_index(harness: SweepHarness, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Sweep with a feed that fails as soon as everything but the index is published."""
    flaky = FlakyFeed(harness.feed)
    publish = Sweep._publish_index

    def failing(sweep: Sweep) -> str | None:
        flaky.plan("versions", *[fault] * 9)
        return publish(sweep)

    monkeypatch.setattr(Sweep, "_publish_index", failing)
    before: Feed = harness.feed
    harness.feed = flaky
    harness.sweep(PLAN)
    harness.feed = before
    monkeypatch.undo()


def newest(harness: SweepHarness) -> SweepInfo:
    info = harness.state.find_sweep()
    assert info is not None
    return info


@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fault.DENIED, Exit.HOST_CANNOT_PUBLISH), (Fault.DOWN, Exit.UNUSABLE)],
)
def test_an_index_that_could_not_be_written_is_missed_until_a_resume_writes_it(
    harness: SweepHarness,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: Fault,
    code: Exit,
) -> None:
    without_index(harness, monkeypatch, fault)
    info = newest(harness)
    assert info.exit_code == code
    for flags in ([], ["--watch"]):
        words = ["status", info.stamp, "--home", str(harness.root), "--exit-code"]
        assert main([*words, *flags]) == code
        assert "the index is not published, no process is working: " in capsys.readouterr().out
    told = summary_document(harness.state, info)
    assert told.summary.counts == {"published": 1}
    assert ET.fromstring(junit(told).partition("\n")[2]).get("errors") == "1"
    assert f"`{NEXT} {info.stamp}`" in markdown(told)

    harness.stop = Stop()
    assert harness.sweep(PLAN).exit_code() is Exit.OK
    assert main(["status", "--home", str(harness.root), "--exit-code"]) == Exit.OK
    assert "index" not in capsys.readouterr().out
    told = summary_document(harness.state, info)
    assert ET.fromstring(junit(told).partition("\n")[2]).get("errors") == "0"


def killed_before_the_index(harness: SweepHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweep until everything but the index is published, and end as kill -9 does."""
    monkeypatch.setattr(Sweep, "finish", lambda sweep: (None, None))
    harness.sweep(PLAN)
    monkeypatch.undo()
    data = json.dumps({"process": to_json(DEAD.process)})
    sql(harness.state, "UPDATE event SET data = :data WHERE kind = 'begun'", data=data)


def test_a_sweep_that_was_killed_before_its_index_is_not_watched_without_end(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_before_the_index(harness, monkeypatch)
    words = ["status", "--home", str(harness.root), "--exit-code", "--watch", "--json"]
    assert main(words) == Exit.INTERRUPTED
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["unindexed"] is True
    assert [NEXT in line for line in last["idle"]] == [True]
