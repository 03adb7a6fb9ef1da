from __future__ import annotations

import threading
from pathlib import Path

import pytest

from machine.locks import locked, take, take_now
from machine.waits import Cancelled, WaitedTooLong, WaitRules


def test_only_one_holds_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locked(path):
        assert take_now(path) is None
    lock = take_now(path)
    assert lock is not None
    lock.release()


def test_who_hangs_with_a_lock_is_not_waited_for_without_end(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locked(path), pytest.raises(WaitedTooLong, match=r"a\.lock for 0 s .*stopped or hung"):
        take(path, WaitRules(0.0))
    take(path, WaitRules(0.0)).release()


def test_a_wait_is_told_of_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("machine.waits.TELL_AFTER", 0.0)
    path, cancel, told = tmp_path / "a.lock", threading.Event(), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        cancel.set()

    with locked(path), pytest.raises(Cancelled, match="the other build"):
        take(path, WaitRules(cancel=cancel, told=tell), what="the other build")
    assert told == ["waiting for the other build"]


def test_a_lock_that_is_freed_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    held = take(path)
    threading.Timer(0.1, held.release).start()
    with locked(path, WaitRules(60.0)):
        assert take_now(path) is None
