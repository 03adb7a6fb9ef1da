"""How many calls lie between a leased model and its engine, and between a package and its record.

A newcomer follows one cell from lease to publish through these frames; this keeps them few.
"""

from __future__ import annotations

import importlib
import queue
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from feed.interface import Published
from matrix.status import Status
from tests.fakes.engine import fake_spec
from tests.fakes.feed import MemoryFeed
from tests.sweeps import in_memory as floors
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from workers.engine import StageError
from workers.host.client import EngineHost
from workers.host.service import EngineService

ROOT = Path(__file__).parents[4]
TO_THE_ENGINE = 14
TO_THE_RECORD = 11


def frames(frame: FrameType | None, until: str) -> list[str]:
    """The functions on the stack, innermost last, from `until` (not included) inwards."""
    found: list[str] = []
    while frame is not None:
        code = frame.f_code
        if code.co_qualname == until:
            return found[::-1]
        if not Path(code.co_filename).is_relative_to(ROOT / "tests"):
            found.append(f"{Path(code.co_filename).name}:{code.co_qualname}")
        frame = frame.f_back
    return []


class PipeEnd:
    """An engine's process without the process: answers in the thread that asks."""

    alive, closed, exit_code = True, False, None
    seen: list[list[str]] = []  # noqa: RUF012 - one list for the whole test

    def __init__(self, *_how: object) -> None:
        fakes: Any = importlib.import_module("modelmill_fakes")
        self._service = EngineService(fakes.FakeEngine())
        self._replies: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._replies.put({"ready": True})
        self.tree = self

    def memory(self) -> int:
        return 0

    def send(self, message: dict[str, Any]) -> bool:
        if message["op"] == "run":
            self.seen.append(frames(sys._getframe(1), "_lease_and_work"))
        try:
            result = self._service.call(message["op"], message["args"], lambda _text: None)
        except StageError as error:
            self._replies.put({"id": message["id"], "ok": False, "error": {"message": str(error)}})
        else:
            self._replies.put({"id": message["id"], "ok": True, "result": result, "peak": 1})
        return True

    def receive(self, timeout: float) -> dict[str, Any]:
        return self._replies.get(timeout=timeout)

    def end(self) -> None:
        """Nothing to kill."""


class WatchedFeed(MemoryFeed):
    """Notes who publishes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[str]] = []

    def publish(self, *what: Any, **how: Any) -> Published:
        self.seen.append(frames(sys._getframe(1), "_WorkItem.run"))
        return super().publish(*what, **how)

    def find(self, *what: Any) -> Published | None:
        self.seen.append(frames(sys._getframe(1), "_WorkItem.run"))
        return super().find(*what)

    def files(self, *what: Any) -> Any:
        self.seen.append(frames(sys._getframe(1), "_WorkItem.run"))
        return super().files(*what)


def documented_walk() -> list[str]:
    """The calls that the page about the architecture names, each in a file that exists."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    block = page.partition("## The walk of one cell")[2].split("```")[1]
    rows = [line.split()[:2] for line in block.splitlines()[1:]]
    assert all((ROOT / file).is_file() for file, _name in rows)
    return [f"{Path(file).name}:{name}" for file, name in rows]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepHarness]:
    monkeypatch.setattr("workers.host.client.HostProcess", PipeEnd)
    monkeypatch.setattr(floors, "InProcessHost", lambda logs: EngineHost(fake_spec(), log_dir=logs))
    monkeypatch.setattr(PipeEnd, "seen", [])
    made = SweepHarness(tmp_path, feed=WatchedFeed())
    yield made
    made.close()


def test_from_the_lease_to_the_engine_and_from_the_package_to_the_record(
    watched: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[list[str]] = []
    record = watched.state.record

    def noted(lease: Any, sweep: int, cell: str, status: Status, *more: Any, **how: Any) -> None:
        if status in {Status.PUBLISHING, Status.PUBLISHED}:
            recorded.append(frames(sys._getframe(1), "_WorkItem.run"))
        record(lease, sweep, cell, status, *more, **how)

    monkeypatch.setattr(watched.state, "record", noted)
    assert watched.sweep(make_plan(small_model())).counts == {"published": 3}
    feed = watched.feed
    assert isinstance(feed, WatchedFeed)
    assert PipeEnd.seen
    assert feed.seen
    assert recorded
    for stack in PipeEnd.seen:
        assert len(stack) + 1 <= TO_THE_ENGINE, stack  # and the line is written to the pipe
        assert stack == documented_walk()
    path = dict.fromkeys(name for stack in [*feed.seen, *recorded] for name in stack)
    assert len(path) + 1 <= TO_THE_RECORD, "\n".join(path)  # and the state records it
