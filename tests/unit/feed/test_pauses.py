from __future__ import annotations

from feed.pauses import Pauses


def test_a_pause_is_told_once_for_all_who_make_it() -> None:
    said: list[str] = []
    now = [100.0]
    pauses = Pauses(said.append, lambda: now[0])
    pauses.tell("throttled", 4.9)
    assert said == []
    pauses.tell("throttled", 600)
    pauses.tell("throttled", 600)
    assert said == ["throttled; going on in 600 s"]
    now[0] += 601
    pauses.tell("x" * 1000, 30)
    assert len(said) == 2
    assert len(said[1]) < 300


def test_the_longest_pause_that_is_asked_for_is_kept_once() -> None:
    said: list[str] = []
    now = [100.0]
    slept: list[float] = []
    pauses = Pauses(said.append, lambda: now[0])
    pauses.wait("busy", slept.append)
    pauses.hold(10)
    pauses.hold(5)
    pauses.wait("busy", slept.append)
    assert slept == [10.0]
    now[0] += 11
    pauses.wait("busy", slept.append)
    assert slept == [10.0]
    assert said == ["busy; going on in 10 s"]
