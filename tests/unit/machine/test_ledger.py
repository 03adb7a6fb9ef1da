"""Two ledgers on one folder are two participants, as two processes are."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from machine import ledger as module
from machine.ledger import Ledger
from machine.reservations import DISTURBS, SILENT_AFTER, UNDISTURBED, Want, reserved
from machine.waits import Cancelled, Wait, WaitedTooLong, WaitRules
from tests.machine.dead import NO_SUCH_PID
from tests.machine.timing import patient


def memory(amount: int, room: int = 100) -> list[Want]:
    return [Want("memory", amount, room, f"{amount} bytes")]


@pytest.fixture
def one(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def two(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def total(ledger: Ledger, resource: str = "memory") -> int:
    with ledger.everybody() as entries:
        return reserved(resource, entries)


def files(root: Path) -> list[Path]:
    return [path for path in root.glob("*/*") if path.name != "lock"]


def test_what_one_holds_the_others_do_not_get(one: Ledger, two: Ledger, tmp_path: Path) -> None:
    held = one.claim(memory(60))
    assert held is not None
    assert two.claim(memory(60)) is None
    assert two.claim(memory(40)) is not None
    assert total(one) == total(two) == 100
    held.release()
    held.release()
    assert total(one) == 40
    assert len(files(tmp_path)) == 1, "who holds nothing leaves no file"


def test_several_are_reserved_at_once_or_not_at_all(one: Ledger, two: Ledger) -> None:
    disk = Want("disk", 50, 100, "disk")
    assert one.claim(memory(100)) is not None
    assert two.claim([disk, *memory(1)]) is None
    assert total(two, "disk") == 0
    assert two.claim([disk]) is not None


def test_even_too_much_is_granted_to_one_alone(one: Ledger, two: Ledger) -> None:
    huge = [Want("memory", 1000, 100, "all", alone=True)]
    small = one.claim(memory(1))
    assert small is not None
    assert two.claim(huge) is None
    small.release()
    assert two.claim(huge) is not None
    assert one.claim(memory(0)) is None


def test_room_is_asked_for_anew_with_every_claim(one: Ledger) -> None:
    added = [0]
    want = Want("disk", 60, lambda: 100 - added[0], "disk")
    first = one.claim([want])
    assert first is not None
    first.release()
    added[0] = 50
    assert one.claim([want]) is None


def test_who_waits_is_served_in_turn(one: Ledger, two: Ledger) -> None:
    held = one.claim(memory(60))
    assert held is not None
    with two.queue(memory(90)) as large, one.queue(memory(10)) as small:
        assert large.claim(memory(90)) is None
        assert small.claim(memory(10)) is None, "it would fit, but another one was first"
        assert one.claim(memory(1)) is None
        assert (large.first, small.first) == (True, False)
        held.release()
        assert small.claim(memory(10)) is None
        assert large.claim(memory(90)) is not None
        with two.queue([DISTURBS]) as other:
            assert other.claim([DISTURBS]) is not None, "waits for something else are not ahead"
    assert small.claim(memory(10)) is not None


def test_a_wait_says_what_it_waits_for_and_who_has_it(
    one: Ledger, two: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("machine.waits.TELL_AFTER", 0.0)
    cancel, told = threading.Event(), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        cancel.set()

    assert one.claim(memory(60), "bert-tiny") is not None
    with pytest.raises(Cancelled, match="cancelled while waiting for 50 bytes"):
        two.reserve(memory(50), rules=WaitRules(cancel=cancel, told=tell))
    assert told == [f"waiting for 50 bytes, held by process {os.getpid()} (bert-tiny)"]
    assert one.claim(memory(1)) is not None, "nobody is left in the queue"


def test_who_does_not_go_on_is_not_waited_for_without_end(one: Ledger, two: Ledger) -> None:
    assert one.claim(memory(60)) is not None
    with pytest.raises(WaitedTooLong, match=r"held by process \d+, and nothing has changed"):
        two.reserve(memory(50), rules=WaitRules(0.0))


def test_a_wait_goes_on_while_others_begin_and_end(one: Ledger, two: Ledger) -> None:
    assert one.claim(memory(60)) is not None
    with two.queue(memory(50)) as place:
        wait = Wait(WaitRules(0.0), clock=iter(range(100)).__next__)
        for _ in range(3):
            assert place.claim(memory(50)) is None
            place.pause(wait)
            assert one.claim([DISTURBS, Want("memory", 0, 0, "none")]) is None
            assert one.claim(memory(0, room=1000)) is None
            with one.queue(memory(1)) as other:
                assert place.claim(memory(50)) is None
                place.pause(wait)
                assert other.claim(memory(1)) is None
        assert place.claim(memory(50)) is None
        place.pause(wait)
        with pytest.raises(WaitedTooLong):
            place.pause(wait)


def test_a_release_wakes_who_waits_in_the_same_process(
    one: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL", 60.0)
    held, got = one.claim(memory(60)), threading.Event()
    assert held is not None

    def waiting() -> None:
        with one.reserve(memory(60)):
            got.set()

    thread = threading.Thread(target=waiting)
    thread.start()
    waits = False
    while not waits:
        with one.everybody() as entries:
            waits = any(entry.waiting for entry in entries)
    held.release()
    thread.join(60)
    assert got.is_set()


def test_measurements_and_builds_keep_out_of_each_others_way(one: Ledger, two: Ledger) -> None:
    builds = [one.claim([DISTURBS]), two.claim([DISTURBS])]
    with one.queue([UNDISTURBED]) as place:
        assert place.claim([UNDISTURBED]) is None
        assert two.claim([DISTURBS]) is None, "a measurement that waits is not passed by builds"
        for build in builds:
            assert build is not None
            build.release()
        measuring = place.claim([UNDISTURBED])
        assert measuring is not None
    assert two.claim([DISTURBS]) is None
    assert two.claim([UNDISTURBED]) is None
    measuring.release()
    assert two.claim([DISTURBS]) is not None


def left_behind(ledger: Ledger, root: Path, pid: int, started: str) -> Path:
    """The file of another process, as this one would have written it."""
    held = ledger.claim(memory(100))
    assert held is not None
    (mine,) = files(root)
    data = mine.read_bytes()
    held.release()
    scope, _pid, _started, random = mine.name.split("-")
    path = mine.with_name(f"{scope}-{pid}-{started}-{random}")
    path.write_bytes(data)
    return path


def test_what_a_dead_process_held_is_free(one: Ledger, tmp_path: Path) -> None:
    path = left_behind(one, tmp_path, NO_SUCH_PID, "1")
    half = path.with_name(f".{path.name}.0123456789ab")
    half.touch()
    assert one.claim(memory(100)) is not None
    assert not path.exists()
    assert not half.exists()


def test_a_pid_that_another_process_has_now_holds_nothing(one: Ledger, tmp_path: Path) -> None:
    path = left_behind(one, tmp_path, os.getpid(), "1")
    assert one.claim(memory(100)) is not None
    assert not path.exists()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"held": 1}', b'{"held": {"1": 5}}', b"\xff\x00"]
)
def test_a_damaged_file_is_as_if_empty_until_its_owner_writes_again(
    one: Ledger, two: Ledger, tmp_path: Path, damage: bytes
) -> None:
    assert two.claim(memory(60)) is not None
    (file,) = files(tmp_path)
    file.write_bytes(damage)
    assert total(one) == 0
    assert two.claim(memory(1)) is not None
    assert total(one) == 61


def test_what_strangers_put_into_the_folder_is_left_alone(
    one: Ledger, two: Ledger, tmp_path: Path
) -> None:
    assert one.claim(memory(60)) is not None
    (tmp_path / "ledger" / "notes.txt").touch()
    (tmp_path / "ledger" / "folder").mkdir()
    assert one.claim(memory(1)) is not None
    assert two.trouble == one.trouble == ""
    assert total(two) == 61
    assert (tmp_path / "ledger" / "notes.txt").exists()


def test_a_process_that_is_stopped_keeps_nobody_behind_it(
    one: Ledger, two: Ledger, tmp_path: Path
) -> None:
    held = one.claim(memory(60))
    assert held is not None
    with two.queue(memory(90)):
        assert one.claim(memory(1)) is None
        for file in files(tmp_path):
            old = time.time() - SILENT_AFTER - 60
            os.utime(file, (old, old))
        assert one.claim(memory(1)) is not None
        assert total(one) == 61, "what it holds, it keeps"


def test_where_a_file_is_in_the_way_each_process_counts_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ledger = Ledger(tmp_path / "file")
    assert ledger.claim(memory(60)) is not None
    assert ledger.claim(memory(60)) is None
    assert ledger.trouble
    with pytest.raises(WaitedTooLong, match="other processes are not seen"):
        ledger.reserve(memory(60), rules=WaitRules(0.0))


def test_a_reservation_takes_little_time(one: Ledger, two: Ledger) -> None:
    two.claim(memory(1))
    wants = [*memory(1), DISTURBS]
    best = float("inf")
    for _ in range(200):
        began = time.perf_counter()
        with one.reserve(wants):
            pass
        best = min(best, time.perf_counter() - began)
    assert best < patient(0.1)  # Wine takes 15 ms, Linux one
