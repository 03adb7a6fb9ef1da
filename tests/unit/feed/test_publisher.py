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
from feed.publisher import AGAIN, LONGEST_WAIT, MISSES, Publisher, Receipt
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


class PublisherHarness:
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
def harness(tmp_path: Path) -> PublisherHarness:
    return PublisherHarness(tmp_path)


def test_plain(harness: PublisherHarness) -> None:
    receipt = harness.publish()
    assert (receipt.already_there, receipt.attempts) == (False, 1)
    assert harness.holds_mine()
    assert receipt.published == harness.memory.find(PKG, VER)
    assert harness.feed.calls.index("publish") < harness.feed.calls.index("files")


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
    harness: PublisherHarness, faults: list[Fault], sends: int, attempts: int
) -> None:
    harness.feed.plan("publish", *faults)
    receipt = harness.publish()
    assert harness.holds_mine()
    assert harness.memory.sends == sends
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
    harness: PublisherHarness, method: str, fault: Fault, kind: type[Exception]
) -> None:
    harness.feed.plan(method, fault)
    with pytest.raises(kind):
        harness.publish()
    assert harness.clock.naps == []
    assert harness.published_tree() is None


@pytest.mark.parametrize(
    ("faults", "kind"), [([Fault.DOWN] * 4, Unavailable), ([Fault.SILENT] * 4, OutcomeUnknown)]
)
def test_the_number_of_tries_is_bounded(
    harness: PublisherHarness, faults: list[Fault], kind: type[Exception]
) -> None:
    harness.feed.plan("publish", *faults)
    with pytest.raises(kind):
        harness.publish()
    assert harness.feed.calls.count("publish") == 4
    assert len(harness.clock.naps) == 3
    assert all(0 <= nap <= LONGEST_WAIT for nap in harness.clock.naps)


def test_retry_after_is_honoured(harness: PublisherHarness) -> None:
    harness.feed.plan("publish", Fault.THROTTLED)
    harness.publish()
    assert harness.clock.naps == [RETRY_AFTER]


def test_a_long_pause_is_told(
    harness: PublisherHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.feed.plan("publish", Fault.THROTTLED)
    harness.publish()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"modelmill: {PKG} {VER}: ")
    assert said.endswith(f"going on in {RETRY_AFTER:.0f} s")


def test_no_wait_beyond_the_time_limit(harness: PublisherHarness) -> None:
    harness.feed.plan("publish", Fault.THROTTLED)
    with pytest.raises(TimeLimit, match=r"not published within 16 s: .*throttled"):
        harness.publish(timeout=RETRY_AFTER - 1)
    assert harness.clock.naps == []


@pytest.mark.parametrize("fault", [Fault.DOWN, Fault.SILENT])
def test_a_feed_that_does_not_answer_either_is_an_outage(
    harness: PublisherHarness, fault: Fault
) -> None:
    harness.feed.plan("find", *[fault] * 5)
    with pytest.raises(Outage, match="the feed is unavailable"):
        harness.publish()
    assert harness.memory.sends == 0


def test_an_outage_that_ends_in_time_costs_nothing(harness: PublisherHarness) -> None:
    harness.publisher.patience = 900.0
    harness.feed.plan("find", *[Fault.DOWN] * 30)
    assert harness.publish().attempts == 1
    assert harness.holds_mine()
    assert AGAIN in harness.clock.naps


def test_an_outage_that_lasts_is_told_when_patience_ends(harness: PublisherHarness) -> None:
    harness.publisher.patience = 900.0
    harness.feed.plan("find", *[Fault.DOWN] * 10_000)
    with pytest.raises(Outage, match="the feed is unavailable"):
        harness.publish()
    assert 900.0 <= sum(harness.clock.naps) < 1200.0


def test_patience_ends_with_a_cancellation(harness: PublisherHarness) -> None:
    harness.publisher.patience = 900.0
    harness.feed.plan("find", *[Fault.DOWN] * 10_000)

    def sleep(event: threading.Event, seconds: float) -> bool:
        if seconds == AGAIN:
            event.set()
        return event.is_set()

    harness.publisher.sleep = sleep
    with pytest.raises(Cancelled):
        harness.publish()


def test_a_feed_that_is_gone_is_an_outage(harness: PublisherHarness) -> None:
    harness.feed.plan("find", Fault.MISSING, Fault.MISSING)
    with pytest.raises(Outage, match="the feed is unavailable"):
        harness.publish()


def test_a_feed_that_answers_but_takes_nothing_is_an_outage(harness: PublisherHarness) -> None:
    harness.feed.plan("publish", *[Fault.DOWN] * 4 * (MISSES + 1))
    for version in range(2, MISSES + 1):
        with pytest.raises(Unavailable):
            harness.publisher.publish(
                PKG, f"{version}.0.0", harness.mine, tree=tree_of(harness.mine)
            )
    with pytest.raises(Outage, match=f"none of the last {MISSES}"):
        harness.publish()


def test_what_is_published_in_between_tells_that_it_is_no_outage(harness: PublisherHarness) -> None:
    harness.feed.plan("publish", *([*[Fault.DOWN] * 4, None] * MISSES))
    for version in range(MISSES):
        with pytest.raises(Unavailable):
            harness.publisher.publish(
                PKG, f"{version}.1.0", harness.mine, tree=tree_of(harness.mine)
            )
        harness.publisher.publish(PKG, f"{version}.2.0", harness.mine, tree=tree_of(harness.mine))


def test_each_attempt_gets_what_is_left_of_the_time(
    harness: PublisherHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    publish = harness.memory.publish

    def spy(*args: object, **kwargs: object) -> object:
        given.append(kwargs["timeout"])
        if len(given) == 1:
            raise Unavailable("later", retry_after=30)
        return publish(*args, **kwargs)  # type: ignore[arg-type]  # the same call, passed on

    monkeypatch.setattr(harness.memory, "publish", spy)
    harness.publish(timeout=100)
    assert given == [100, 70]


@pytest.mark.parametrize("moment", ["early", "late"])
def test_equal_content_of_somebody_else_is_published(
    harness: PublisherHarness, moment: str
) -> None:
    if moment == "early":
        harness.rival(harness.twin)
    else:
        harness.feed.before["publish"] = lambda: harness.rival(harness.twin)
    receipt = harness.publish()
    assert receipt.already_there
    assert harness.memory.sends == 1


@pytest.mark.parametrize("moment", ["early", "late"])
def test_other_content_is_a_conflict_and_stays(harness: PublisherHarness, moment: str) -> None:
    if moment == "early":
        harness.rival(harness.other)
    else:
        harness.feed.before["publish"] = lambda: harness.rival(harness.other)
    with pytest.raises(Conflict) as caught:
        harness.publish()
    text = str(caught.value)
    assert tree_of(harness.mine) in text
    assert tree_of(harness.other) in text
    assert "new stamp" in text
    assert set(harness.memory.files(PKG, VER)) == {file.entry for file in harness.other}
    assert harness.clock.naps == []


def test_a_deleted_version_is_a_conflict_in_its_own_words(harness: PublisherHarness) -> None:
    harness.rival(harness.mine)
    harness.memory.delete(PKG, VER)
    with pytest.raises(Conflict, match="deleted"):
        harness.publish()


def test_a_second_publish_sends_nothing(harness: PublisherHarness) -> None:
    harness.publish()
    receipt = harness.publish()
    assert (receipt.already_there, receipt.attempts) == (True, 0)
    assert harness.memory.sends == 1


def test_a_lost_reply_that_cannot_be_looked_up_at_once(harness: PublisherHarness) -> None:
    harness.feed.plan("publish", Fault.LOST).plan("find", None, Fault.DOWN, Fault.THROTTLED)
    receipt = harness.publish()
    assert harness.memory.sends == 1
    assert (receipt.already_there, receipt.attempts) == (False, 1)


def test_a_lost_reply_at_the_end_of_the_time_is_still_settled(harness: PublisherHarness) -> None:
    harness.feed.plan("publish", Fault.LOST)
    harness.feed.before["publish"] = lambda: setattr(harness.clock, "now", 500.0)
    assert harness.publish(timeout=100).published == harness.memory.find(PKG, VER)


@pytest.mark.parametrize("fault", [Fault.ALTERED, Fault.SHORT])
def test_a_feed_that_holds_other_files_than_were_sent(
    harness: PublisherHarness, fault: Fault
) -> None:
    harness.feed.plan("files", fault)
    with pytest.raises((Corrupt, Conflict)):
        harness.publish()


def test_a_build_record_that_was_swapped_is_noticed(
    harness: PublisherHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = tuple(file.entry for file in harness.twin)
    monkeypatch.setattr(harness.memory, "files", lambda package, version: swapped)
    with pytest.raises(Corrupt, match=r"build\.json does not match its listed digest"):
        harness.publish()


def test_a_description_that_lies_is_not_believed(harness: PublisherHarness) -> None:
    harness.rival(harness.other, f"tree=sha256:{tree_of(harness.mine)}")
    with pytest.raises(Corrupt, match="but holds"):
        harness.publish()


def test_a_feed_that_hides_what_it_took_is_not_believed_published(
    harness: PublisherHarness,
) -> None:
    harness.feed.plan("find", *[Fault.EMPTY] * 20)
    with pytest.raises(OutcomeUnknown, match="does not show"):
        harness.publish()
    assert harness.memory.sends == 1


def test_wrong_tree_is_refused_before_anything_is_asked(harness: PublisherHarness) -> None:
    with pytest.raises(Corrupt, match="tree digest"):
        harness.publisher.publish(PKG, VER, harness.mine, tree="0" * 64)
    assert harness.feed.calls == []


def test_cancel_before(harness: PublisherHarness) -> None:
    harness.cancel.set()
    with pytest.raises(Cancelled):
        harness.publish()
    assert harness.feed.calls == []


def test_cancel_in_the_middle_of_a_copy(harness: PublisherHarness) -> None:
    harness.feed.before["publish"] = harness.cancel.set
    with pytest.raises(Cancelled):
        harness.publish()
    assert harness.published_tree() is None


def test_cancel_ends_a_wait_at_once(harness: PublisherHarness) -> None:
    publisher = Publisher(harness.feed, tries=4)
    harness.feed.plan("publish", Fault.THROTTLED)
    waiting = threading.Timer(0.05, harness.cancel.set)
    waiting.start()
    with pytest.raises(Cancelled):
        publisher.publish(PKG, VER, harness.mine, tree=tree_of(harness.mine), cancel=harness.cancel)
    waiting.join()
    assert harness.feed.calls.count("publish") == 1
