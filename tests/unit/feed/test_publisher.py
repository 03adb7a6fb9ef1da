"""Every outcome of a publish under every fault of a feed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from feed.errors import (
    Cancelled,
    Conflict,
    Corrupt,
    NoSpace,
    NotFound,
    Outage,
    OutcomeUnknown,
    Rejected,
    TimeLimit,
    Unauthorized,
    Unavailable,
)
from feed.interface import LocalFile
from feed.publisher import LONGEST_WAIT, MISSES, Publisher, Receipt
from tests.fakes.feed import RETRY_AFTER, Fault, FlakyFeed, MemoryFeed, tree_of, write_files

PKG, VER = "pkg", "1.0.0"


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, cancel: threading.Event, seconds: float) -> bool:
        self.naps.append(seconds)
        self.now += seconds
        return cancel.is_set()


class Bench:
    """A publisher at a flaky feed, and something to publish."""

    def __init__(self, folder: Path) -> None:
        self.memory = MemoryFeed()
        self.feed = FlakyFeed(self.memory)
        self.clock = Clock()
        self.cancel = threading.Event()
        self.publisher = Publisher(self.feed, tries=4, sleep=self.clock.sleep, clock=self.clock)
        self.mine = write_files(folder / "mine", {"model.onnx": b"mine", "build.json": b"1"})
        self.twin = write_files(folder / "twin", {"model.onnx": b"mine", "build.json": b"2"})
        self.other = write_files(folder / "other", {"model.onnx": b"other", "build.json": b"1"})

    def publish(self, timeout: float | None = None) -> Receipt:
        return self.publisher.publish(
            PKG, VER, self.mine, tree=tree_of(self.mine), timeout=timeout, cancel=self.cancel
        )

    def rival(self, files: tuple[LocalFile, ...], described: str = "") -> None:
        self.memory.publish(PKG, VER, files, described)

    def holds_mine(self) -> bool:
        return tree_of(self.mine) == self.published_tree()

    def published_tree(self) -> str | None:
        found = self.memory.find(PKG, VER)
        return found.tree if found else None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_plain(bench: Bench) -> None:
    receipt = bench.publish()
    assert (receipt.already_there, receipt.attempts) == (False, 1)
    assert bench.holds_mine()
    assert receipt.published == bench.memory.find(PKG, VER)
    assert bench.feed.calls.index("publish") < bench.feed.calls.index("files")


@pytest.mark.parametrize(
    ("faults", "sends", "attempts"),
    [
        ([Fault.DOWN], 1, 2),
        ([Fault.THROTTLED], 1, 2),
        ([Fault.HALFWAY], 1, 2),
        ([Fault.SILENT], 1, 2),
        ([Fault.LOST], 1, 1),
        ([Fault.UNTRUE], 1, 2),
        ([Fault.HALFWAY, Fault.SILENT, Fault.LOST], 1, 3),
        ([Fault.DOWN, Fault.DOWN, Fault.DOWN], 1, 4),
    ],
)
def test_what_passes_by_itself_ends_in_one_version(
    bench: Bench, faults: list[Fault], sends: int, attempts: int
) -> None:
    bench.feed.plan("publish", *faults)
    receipt = bench.publish()
    assert bench.holds_mine()
    assert bench.memory.sends == sends
    assert receipt.attempts == attempts
    assert not receipt.already_there


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.DENIED, Unauthorized),
        (Fault.REFUSED, Rejected),
        (Fault.FULL, NoSpace),
        (Fault.MISSING, NotFound),
    ],
)
@pytest.mark.parametrize("method", ["publish", "find"])
def test_what_does_not_pass_is_not_repeated(
    bench: Bench, method: str, fault: Fault, kind: type[Exception]
) -> None:
    bench.feed.plan(method, fault)
    with pytest.raises(kind):
        bench.publish()
    assert bench.clock.naps == []
    assert bench.published_tree() is None


@pytest.mark.parametrize(
    ("faults", "kind"), [([Fault.DOWN] * 4, Unavailable), ([Fault.SILENT] * 4, OutcomeUnknown)]
)
def test_the_number_of_tries_is_bounded(
    bench: Bench, faults: list[Fault], kind: type[Exception]
) -> None:
    bench.feed.plan("publish", *faults)
    with pytest.raises(kind):
        bench.publish()
    assert bench.feed.calls.count("publish") == 4
    assert len(bench.clock.naps) == 3
    assert all(0 <= nap <= LONGEST_WAIT for nap in bench.clock.naps)


def test_retry_after_is_honoured(bench: Bench) -> None:
    bench.feed.plan("publish", Fault.THROTTLED)
    bench.publish()
    assert bench.clock.naps == [RETRY_AFTER]


def test_a_long_pause_is_told(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.feed.plan("publish", Fault.THROTTLED)
    bench.publish()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"modelmill: {PKG} {VER}: ")
    assert said.endswith(f"going on in {RETRY_AFTER:.0f} s")


def test_no_wait_beyond_the_time_limit(bench: Bench) -> None:
    bench.feed.plan("publish", Fault.THROTTLED)
    with pytest.raises(TimeLimit, match=r"not published within 16 s: .*throttled"):
        bench.publish(timeout=RETRY_AFTER - 1)
    assert bench.clock.naps == []


@pytest.mark.parametrize("fault", [Fault.DOWN, Fault.SILENT])
def test_a_feed_that_does_not_answer_either_is_an_outage(bench: Bench, fault: Fault) -> None:
    bench.feed.plan("find", *[fault] * 5)
    with pytest.raises(Outage, match="the feed is unavailable"):
        bench.publish()
    assert bench.memory.sends == 0


def test_a_feed_that_is_gone_is_an_outage(bench: Bench) -> None:
    bench.feed.plan("find", Fault.MISSING, Fault.MISSING)
    with pytest.raises(Outage, match="the feed is unavailable"):
        bench.publish()


def test_a_feed_that_answers_but_takes_nothing_is_an_outage(bench: Bench) -> None:
    bench.feed.plan("publish", *[Fault.DOWN] * 4 * (MISSES + 1))
    for version in range(2, MISSES + 1):
        with pytest.raises(Unavailable):
            bench.publisher.publish(PKG, f"{version}.0.0", bench.mine, tree=tree_of(bench.mine))
    with pytest.raises(Outage, match=f"none of the last {MISSES}"):
        bench.publish()


def test_what_is_published_in_between_tells_that_it_is_no_outage(bench: Bench) -> None:
    bench.feed.plan("publish", *([*[Fault.DOWN] * 4, None] * MISSES))
    for version in range(MISSES):
        with pytest.raises(Unavailable):
            bench.publisher.publish(PKG, f"{version}.1.0", bench.mine, tree=tree_of(bench.mine))
        bench.publisher.publish(PKG, f"{version}.2.0", bench.mine, tree=tree_of(bench.mine))


def test_each_attempt_gets_what_is_left_of_the_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    publish = bench.memory.publish

    def spy(*args: object, **kwargs: object) -> object:
        given.append(kwargs["timeout"])
        if len(given) == 1:
            raise Unavailable("later", retry_after=30)
        return publish(*args, **kwargs)  # type: ignore[arg-type]  # the same call, passed on

    monkeypatch.setattr(bench.memory, "publish", spy)
    bench.publish(timeout=100)
    assert given == [100, 70]


@pytest.mark.parametrize("moment", ["early", "late"])
def test_equal_content_of_somebody_else_is_published(bench: Bench, moment: str) -> None:
    if moment == "early":
        bench.rival(bench.twin)
    else:
        bench.feed.before["publish"] = lambda: bench.rival(bench.twin)
    receipt = bench.publish()
    assert receipt.already_there
    assert bench.memory.sends == 1


@pytest.mark.parametrize("moment", ["early", "late"])
def test_other_content_is_a_conflict_and_stays(bench: Bench, moment: str) -> None:
    if moment == "early":
        bench.rival(bench.other)
    else:
        bench.feed.before["publish"] = lambda: bench.rival(bench.other)
    with pytest.raises(Conflict) as caught:
        bench.publish()
    text = str(caught.value)
    assert tree_of(bench.mine) in text
    assert tree_of(bench.other) in text
    assert "new stamp" in text
    assert set(bench.memory.files(PKG, VER)) == {file.entry for file in bench.other}
    assert bench.clock.naps == []


def test_a_deleted_version_is_a_conflict_in_its_own_words(bench: Bench) -> None:
    bench.rival(bench.mine)
    bench.memory.delete(PKG, VER)
    with pytest.raises(Conflict, match="deleted"):
        bench.publish()


def test_a_second_publish_sends_nothing(bench: Bench) -> None:
    bench.publish()
    receipt = bench.publish()
    assert (receipt.already_there, receipt.attempts) == (True, 0)
    assert bench.memory.sends == 1


def test_a_lost_reply_that_cannot_be_looked_up_at_once(bench: Bench) -> None:
    bench.feed.plan("publish", Fault.LOST).plan("find", None, Fault.DOWN, Fault.THROTTLED)
    receipt = bench.publish()
    assert bench.memory.sends == 1
    assert (receipt.already_there, receipt.attempts) == (False, 1)


def test_a_lost_reply_at_the_end_of_the_time_is_still_settled(bench: Bench) -> None:
    bench.feed.plan("publish", Fault.LOST)
    bench.feed.before["publish"] = lambda: setattr(bench.clock, "now", 500.0)
    assert bench.publish(timeout=100).published == bench.memory.find(PKG, VER)


@pytest.mark.parametrize("fault", [Fault.ALTERED, Fault.SHORT])
def test_a_feed_that_holds_other_files_than_were_sent(bench: Bench, fault: Fault) -> None:
    bench.feed.plan("files", fault)
    with pytest.raises((Corrupt, Conflict)):
        bench.publish()


def test_a_build_record_that_was_swapped_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = tuple(file.entry for file in bench.twin)
    monkeypatch.setattr(bench.memory, "files", lambda package, version: swapped)
    with pytest.raises(Corrupt, match=r"changed: build\.json"):
        bench.publish()


def test_a_description_that_lies_is_not_believed(bench: Bench) -> None:
    bench.rival(bench.other, f"tree=sha256:{tree_of(bench.mine)}")
    with pytest.raises(Corrupt, match="but holds"):
        bench.publish()


def test_a_feed_that_hides_what_it_took_is_not_believed_published(bench: Bench) -> None:
    bench.feed.plan("find", *[Fault.EMPTY] * 20)
    with pytest.raises(OutcomeUnknown, match="does not show"):
        bench.publish()
    assert bench.memory.sends == 1


def test_wrong_tree_is_refused_before_anything_is_asked(bench: Bench) -> None:
    with pytest.raises(Corrupt, match="tree digest"):
        bench.publisher.publish(PKG, VER, bench.mine, tree="0" * 64)
    assert bench.feed.calls == []


def test_cancel_before(bench: Bench) -> None:
    bench.cancel.set()
    with pytest.raises(Cancelled):
        bench.publish()
    assert bench.feed.calls == []


def test_cancel_in_the_middle_of_a_copy(bench: Bench) -> None:
    bench.feed.before["publish"] = bench.cancel.set
    with pytest.raises(Cancelled):
        bench.publish()
    assert bench.published_tree() is None


def test_cancel_ends_a_wait_at_once(bench: Bench) -> None:
    publisher = Publisher(bench.feed, tries=4)
    bench.feed.plan("publish", Fault.THROTTLED)
    waiting = threading.Timer(0.05, bench.cancel.set)
    waiting.start()
    with pytest.raises(Cancelled):
        publisher.publish(PKG, VER, bench.mine, tree=tree_of(bench.mine), cancel=bench.cancel)
    waiting.join()
    assert bench.feed.calls.count("publish") == 1


def test_progress_reaches_the_caller(bench: Bench) -> None:
    seen: list[tuple[int, int]] = []
    bench.publisher.publish(
        PKG, VER, bench.mine, tree=tree_of(bench.mine), progress=lambda *at: seen.append(at)
    )
    assert seen == [(4, 5), (5, 5)]
