"""The three ways to show a running sweep, and what each says of the time that is left."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import TextIO, cast

import pytest

from flows.observe.progress import SweepProgress
from flows.observe.views import JsonView, LiveView, PlainView, choose_view
from flows.output.console import Detail, Output
from flows.plan.estimates import ESTIMATE, Cost, Estimates
from flows.plan.recorded import PLAN
from matrix.status import FailureClass, Status
from state.measurements import MEASURED
from state.records import Event, Holder, Kind

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
    cost = Cost(seconds, 2e9, 5e8, "its own history")
    models = {cell.partition("@")[0]: cost for cell in CELLS}
    return Estimates(models, dict.fromkeys(CELLS, seconds))


def event(cell: str, status: Status, owner: str = "host/1/slot-1", **data: object) -> Event:
    return Event(1, 0.0, 1, cell, cell.partition("@")[0], Kind.STATUS, status, 1, owner, data)


def test_a_terminal_shows_bar_time_disk_memory_slots_and_failures() -> None:
    out = Terminal()
    view = choose_view(as_json=False, out=out)
    assert isinstance(view, LiveView)
    progress = SweepProgress(dict.fromkeys(CELLS, Status.PLANNED), slots=2, known=figures())
    for one in (
        event(CELLS[0], Status.BUILDING),
        event(CELLS[0], Status.BUILD_FAILED, failure=FailureClass.QUANTIZE, message="no [scale]"),
        event(CELLS[1], Status.BUILDING, "host/1/slot-2"),
    ):
        progress.apply(one)
        view.event(one, progress)
    view.tick(progress)
    view.close()
    text = out.shown()
    assert "QUANTIZE no [scale]" in text
    assert re.search(r" 1/60  \d+s  1 failed", text)
    assert re.search(r"about \d+m\d\ds left", text)
    assert re.search(r"disk about [\d.]+ GB, memory about 1\.0 GB", text)
    assert re.search(rf"slot-2: building \S+  {re.escape(CELLS[1])}", text)


def test_more_slots_than_lines_are_counted() -> None:
    out = Terminal()
    view = LiveView(out)
    progress = SweepProgress(dict.fromkeys(CELLS, Status.PLANNED), slots=60)
    for number, cell in enumerate(CELLS):
        progress.apply(event(cell, Status.BUILDING, f"host-{number}/1/slot-1"))
    view.tick(progress)
    view.close()
    assert "... and 51 more at work" in out.shown()


def test_plain_lines_look_ahead_at_first_and_now_and_then() -> None:
    out = io.StringIO()
    view = choose_view(as_json=False, out=out)
    assert isinstance(view, PlainView)
    progress = SweepProgress(dict.fromkeys(CELLS, Status.PLANNED), known=figures())
    for cell in CELLS:
        view.tick(progress)
        for status in (Status.BUILDING, Status.PUBLISHED):
            progress.apply(event(cell, status))
            view.event(event(cell, status), progress)
    view.tick(progress)
    ahead = [line for line in out.getvalue().splitlines() if "about" in line]
    assert [line.partition(":")[0] for line in ahead] == ["0/60", "20/60", "40/60"]
    assert len(out.getvalue().splitlines()) == 63
    assert "disk" in ahead[0]
    assert "memory" in ahead[0]


def test_plain_lines_without_a_past_say_nothing_of_the_future() -> None:
    out = io.StringIO()
    view = PlainView(out)
    view.tick(SweepProgress(dict.fromkeys(CELLS, Status.PLANNED)))
    assert out.getvalue() == ""


def test_json_lines_hold_every_event() -> None:
    out = io.StringIO()
    view = choose_view(as_json=True, out=out)
    assert isinstance(view, JsonView)
    progress = SweepProgress({})
    view.event(event(CELLS[0], Status.PUBLISHED, bytes=7), progress)
    view.tick(progress)
    view.close()
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert (line["type"], line["status"], line["data"]) == ("event", "published", {"bytes": 7})
    assert {PLAN, ESTIMATE}.isdisjoint(line["data"])


def test_sixty_columns_keep_what_moves_and_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = Terminal()
    view = LiveView(out)
    cell = f"an-organization/{'a-long-name-' * 6}base:feature-extraction@vitisai_npu"
    progress = SweepProgress({cell: Status.PLANNED}, slots=1)
    progress.apply(event(cell, Status.BUILDING))
    owner, (_cell, status, since) = next(iter(progress.busy.items()))
    progress.busy[owner] = (cell, status, since - 12)
    view.tick(progress)
    view.close()
    drawn = [line for line in out.shown().replace("\r", "\n").splitlines() if "slot-1" in line]
    assert re.fullmatch(r"  slot-1: building 1\ds  an-org\S*…\S*@vitisai_npu", drawn[-1]), drawn
    assert len(drawn[-1]) <= 60


def test_detail_decides_which_lines_are_printed() -> None:
    steps = (event(CELLS[0], Status.BUILDING), event(CELLS[0], Status.PUBLISHED))
    failed = event(CELLS[1], Status.BUILD_FAILED, failure=FailureClass.EXPORT, message="no")
    shown = {}
    for detail in Detail:
        text = io.StringIO()
        out = Output(text)
        out.detail = detail
        view = choose_view(as_json=False, out=cast("TextIO", out))
        progress = SweepProgress(dict.fromkeys(CELLS, Status.PLANNED))
        for one in (*steps, failed):
            progress.apply(one)
            view.event(one, progress)
        shown[detail] = [
            line.split()[1] for line in text.getvalue().replace("[ ", "[").splitlines()
        ]
    assert shown[Detail.QUIET] == ["build_failed"]
    assert shown[Detail.USUAL] == ["published", "build_failed"]
    assert shown[Detail.VERBOSE] == ["building", "published", "build_failed"]


def test_who_measures_is_shown_although_no_event_tells_of_it() -> None:
    progress = SweepProgress(dict.fromkeys(CELLS[:1], Status.PUBLISHED))
    holder = Holder(
        model="m:t",
        needs=("bench:cpu/cpu",),
        sweep_id=1,
        token=1,
        owner="box/1/slot-1",
        host="box",
        pid=1,
        taken_at=5.0,
        renewed_at=5.0,
        expires_at=9.0,
        cell=CELLS[0],
        activity="session 1 of 3: run 20 of 500",
        expired=False,
    )
    progress.look_at([holder])
    assert progress.doing(holder.owner) == "session 1 of 3: run 20 of 500"
    progress.look_at([])
    assert progress.busy == {}
    progress.look_at([replace(holder, needs=("engine:fake",))])
    assert progress.busy == {}, "of building the events tell"


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (
            {"state": "measured", "on": "QNN npu (emulated)", "p50": 1.2345, "emulated": True},
            f"measured       {CELLS[0]}  p50 1.23 ms on QNN npu (emulated)",
        ),
        ({"state": "measured", "before": [1]}, f"measured       {CELLS[0]}  as before"),
        (
            {"state": "failed", "message": "CRASH: gone"},
            f"not measured   {CELLS[0]}  CRASH: gone",
        ),
        (
            {"state": "measured", "tuned": "done", "champion": "opset-19"},
            f"tuned          {CELLS[0]}  champion opset-19",
        ),
        (
            {"state": "measured", "tuned": "done", "champion": ""},
            f"tuned          {CELLS[0]}  no champion",
        ),
    ],
)
def test_a_benchmark_has_a_line_of_its_own(told: object, shown: str) -> None:
    out = io.StringIO()
    view = choose_view(as_json=False, out=out)
    one = replace(event(CELLS[0], Status.PLANNED), kind=Kind.NOTICE, status=None)
    view.event(
        replace(one, data={MEASURED: told}), SweepProgress(dict.fromkeys(CELLS, Status.PLANNED))
    )
    assert out.getvalue() == f"[     ] {shown}\n"


def test_colours_are_decided_about_in_one_place() -> None:
    for wanted in (False, True):
        terminal = Terminal()
        out = Output(terminal)
        out.colour = wanted
        view = choose_view(as_json=False, out=cast("TextIO", out))
        assert isinstance(view, LiveView)
        progress = SweepProgress(dict.fromkeys(CELLS, Status.PLANNED))
        one = event(CELLS[0], Status.BUILD_FAILED, failure=FailureClass.EXPORT, message="no")
        progress.apply(one)
        view.event(one, progress)
        view.close()
        assert ("\x1b[31m" in terminal.getvalue()) is wanted
