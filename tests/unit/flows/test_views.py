"""The three ways to show a running sweep, and what each says of the time that is left."""

from __future__ import annotations

import io
import json
import re

import pytest

from flows.estimates import Cost, Estimates, Range
from flows.outlook import OUTLOOK
from flows.planned import PLAN
from flows.tally import Tally
from flows.views import JsonView, LiveView, PlainView, choose_view
from matrix.status import FailureClass, Status
from state.records import Event, Kind

CELLS = [f"org/model-{number}:t@qnn_npu" for number in range(60)]


class Terminal(io.StringIO):
    """A terminal as far as anybody asks."""

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.getvalue())


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "12")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def figures(seconds: float = 60.0) -> Estimates:
    cost = Cost(Range.around(seconds), Range.around(2e9), Range.around(5e8), "its own history")
    models = {cell.partition("@")[0]: cost for cell in CELLS}
    return Estimates(models, dict.fromkeys(CELLS, seconds))


def event(cell: str, status: Status, owner: str = "host/1/slot-1", **data: object) -> Event:
    return Event(1, 0.0, 1, cell, cell.partition("@")[0], Kind.STATUS, status, 1, owner, data)


def test_a_terminal_shows_bar_time_disk_memory_slots_and_failures() -> None:
    out = Terminal()
    view = choose_view(as_json=False, out=out)
    assert isinstance(view, LiveView)
    tally = Tally(dict.fromkeys(CELLS, Status.PLANNED), slots=2, known=figures())
    for one in (
        event(CELLS[0], Status.BUILDING),
        event(CELLS[0], Status.BUILD_FAILED, failure=FailureClass.QUANTIZE, message="no [scale]"),
        event(CELLS[1], Status.BUILDING, "host/1/slot-2"),
    ):
        tally.apply(one)
        view.event(one, tally)
    view.tick(tally)
    view.close()
    text = out.shown()
    assert "QUANTIZE no [scale]" in text
    assert " 1/60  1 failed" in text
    assert re.search(r"about \d+m\d\ds \(\d+m\d\ds to \d+m\d\ds\) left", text)
    assert re.search(r"disk [\d.]+ GB \([\d.]+ GB to [\d.]+ GB\), memory 1\.0 GB \(", text)
    assert f"slot-2: {CELLS[1]} building" in text


def test_more_slots_than_lines_are_counted() -> None:
    out = Terminal()
    view = LiveView(out)
    tally = Tally(dict.fromkeys(CELLS, Status.PLANNED), slots=60)
    for number, cell in enumerate(CELLS):
        tally.apply(event(cell, Status.BUILDING, f"host-{number}/1/slot-1"))
    view.tick(tally)
    view.close()
    assert "... and 51 more at work" in out.shown()


def test_plain_lines_look_ahead_at_first_and_now_and_then() -> None:
    out = io.StringIO()
    view = choose_view(as_json=False, out=out)
    assert isinstance(view, PlainView)
    tally = Tally(dict.fromkeys(CELLS, Status.PLANNED), known=figures())
    for cell in CELLS:
        view.tick(tally)
        for status in (Status.BUILDING, Status.PUBLISHED):
            tally.apply(event(cell, status))
            view.event(event(cell, status), tally)
    view.tick(tally)
    ahead = [line for line in out.getvalue().splitlines() if "about" in line]
    assert [line.partition(":")[0] for line in ahead] == ["0/60", "20/60", "40/60"]
    assert len(out.getvalue().splitlines()) == 63
    assert "disk" in ahead[0]
    assert "memory" in ahead[0]


def test_plain_lines_without_a_past_say_nothing_of_the_future() -> None:
    out = io.StringIO()
    view = PlainView(out)
    view.tick(Tally(dict.fromkeys(CELLS, Status.PLANNED)))
    assert out.getvalue() == ""


def test_json_lines_hold_every_event() -> None:
    out = io.StringIO()
    view = choose_view(as_json=True, out=out)
    assert isinstance(view, JsonView)
    tally = Tally({})
    view.event(event(CELLS[0], Status.PUBLISHED, bytes=7), tally)
    view.tick(tally)
    view.close()
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert (line["type"], line["status"], line["data"]) == ("event", "published", {"bytes": 7})
    assert {PLAN, OUTLOOK}.isdisjoint(line["data"])
