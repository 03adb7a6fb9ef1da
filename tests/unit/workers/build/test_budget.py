from __future__ import annotations

import threading
from pathlib import Path

import pytest

from machine.waits import Cancelled, WaitRules
from matrix.status import FailureClass
from workers.build.budgets import DiskBudget
from workers.errors import BuildFailed
from workers.store import Action, GcReport, Store, usage_of

PLENTY = 1 << 50


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    for digit in "123":
        fill(store, digit)
    return store


def fill(store: Store, digit: str, size: int = 100) -> None:
    out = store.scratch.new_folder()
    (out / "a").write_bytes(digit.encode() * size)
    store.ingest(out, Action(digit * 64, {}, (), {}, {}, 0, 0, f"model {digit}"))


def budget(store: Store, limit: int, **more: object) -> DiskBudget:
    reports = more.get("reports")
    evicted = reports.append if isinstance(reports, list) else lambda _report: None
    return DiskBudget(store, limit, free=lambda _path: PLENTY, evicted=evicted)


def test_what_fits_is_reserved_and_given_back(store: Store) -> None:
    disk = budget(store, 1000)
    with disk.reserve(600), disk.reserve(100):
        assert disk.reserved == 700
    assert disk.reserved == 0
    assert usage_of(store.root).actions == 3


def test_room_is_made_by_evicting_and_that_is_reported(store: Store) -> None:
    reports: list[GcReport] = []
    disk = budget(store, 400, reports=reports)
    with disk.reserve(280):
        assert usage_of(store.root).size <= 120
    assert [item.subject for item in reports[0].evicted] == ["model 1", "model 2"]


def test_what_lies_beside_the_store_counts(store: Store) -> None:
    kept = [0]
    disk = DiskBudget(store, 400, beside=lambda: kept[0], free=lambda _path: PLENTY)
    assert disk.limit == 400
    kept[0] = 150
    assert disk.limit == 250
    with disk.reserve(100):
        assert (
            usage_of(store.root).size == 100
        )  # 150 are kept, 100 reserved, and eviction goes further
    kept[0] = 1000
    assert disk.limit == 1
    assert DiskBudget(store, 0, beside=lambda: 1000).limit == 0


def test_what_can_never_fit_fails_one_cell_with_the_numbers(store: Store) -> None:
    disk = budget(store, 20_000_000)
    words = r"needs 0.03 GB, but of the disk budget of 0.02 GB"
    with pytest.raises(BuildFailed, match=words) as e, disk.reserve(30_000_000):
        pass
    assert e.value.failure is FailureClass.DISK
    assert not e.value.retryable, "waiting makes it no smaller"
    assert disk.reserved == 0


def test_what_is_in_use_is_not_evicted_for_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    disk = budget(store, 250)
    with store.in_use():
        fill(store, "1")
        fill(store, "2")
        assert not disk.claim(100)
        assert usage_of(store.root).size == 200
    assert disk.claim(100)
    assert usage_of(store.root).size <= 150


def test_nobody_fails_while_others_use_what_could_be_evicted(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    disk, waits, got = budget(store, 250), threading.Event(), threading.Event()

    def waiting() -> None:
        with disk.reserve(100):
            got.set()

    used = store.used

    def looked() -> bool:
        waits.set()
        return used()

    store.used = looked  # type: ignore[method-assign]  # tells that somebody waits
    thread = threading.Thread(target=waiting)
    with store.in_use():
        fill(store, "1")
        fill(store, "2")
        thread.start()
        assert waits.wait(60)
        assert not got.is_set()
    thread.join(60)
    assert got.is_set()


def test_nobody_is_passed_by_those_who_come_later(store: Store) -> None:
    disk, cancel = budget(store, 1000), threading.Event()
    pause = threading.Event()

    def waiting() -> None:
        with pytest.raises(Cancelled), disk.reserve(900, WaitRules(cancel=cancel)):
            pass

    thread = threading.Thread(target=waiting)
    with disk.reserve(200):
        thread.start()
        while not disk.waiting:
            pause.wait(0.01)
        assert not disk.claim(1), "there is room, but somebody is first"
        cancel.set()
        thread.join(60)
        assert disk.claim(1)


def test_more_than_a_stage_needs_is_set_aside_only_where_it_is_to_be_had(store: Store) -> None:
    disk = budget(store, 1000)
    with disk.reserve(100, whole=600) as amount:
        assert amount == disk.reserved == 600
    with disk.reserve(100, whole=5000) as amount:
        assert amount == 1000
        assert usage_of(store.root).size == 0
    left = DiskBudget(store, keep_free=0, free=lambda _path: 150)
    with left.reserve(100, whole=600) as amount:
        assert amount == 100


def test_a_cell_waits_for_others_to_finish(store: Store) -> None:
    disk = budget(store, 1000)
    got, release = threading.Event(), threading.Event()

    def other() -> None:
        with disk.reserve(600):
            got.set()
            assert release.wait(60)

    def waiting() -> None:
        with disk.reserve(600):
            order.append("waited")

    order: list[str] = []
    first, second = threading.Thread(target=other), threading.Thread(target=waiting)
    first.start()
    assert got.wait(60)
    second.start()
    second.join(0.05)
    assert order == []
    release.set()
    second.join(60)
    first.join(60)
    assert order == ["waited"]


def test_waiting_can_be_cancelled(store: Store) -> None:
    disk, cancel = budget(store, 1000), threading.Event()
    cancel.set()
    with disk.reserve(600), pytest.raises(Cancelled), disk.reserve(600, WaitRules(cancel=cancel)):
        pass


def test_the_volume_itself_counts_without_any_limit(store: Store) -> None:
    left = [50]
    disk = DiskBudget(
        store, keep_free=0, free=lambda _path: left[0] + 300 - usage_of(store.root).size
    )
    with disk.reserve(120):
        assert usage_of(store.root).size <= 200
    with pytest.raises(BuildFailed, match="free"), disk.reserve(10_000):
        pass
    assert usage_of(store.root).size == 0


def test_a_small_volume_leaves_a_twentieth_of_itself_free(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"small": 300 * 10**6, "large": 10**12}
    volume = ["small"]
    monkeypatch.setattr("machine.disk.size", lambda _path: sizes[volume[0]])
    disk = DiskBudget(store, free=lambda _path: 210 * 10**6)
    with disk.reserve(190_000):
        pass
    text = "needs 0.20 GB, but the volume of the store has 0.21 GB free, and 0.01 GB of it"
    with pytest.raises(BuildFailed, match=text) as caught, disk.reserve(200 * 10**6):
        pass
    assert "(--keep-free)" in str(caught.value)
    assert "lower --keep-free" in caught.value.hint
    volume[0] = "large"
    with pytest.raises(BuildFailed, match=r"0\.27 GB of it stay free"), disk.reserve(190_000):
        pass
    chosen = DiskBudget(store, keep_free=0, free=lambda _path: 210 * 10**6)
    with chosen.reserve(200 * 10**6):
        pass


def test_what_others_put_into_the_store_is_noticed(store: Store) -> None:
    disk = budget(store, 1000)
    with disk.reserve(10):
        pass
    other = Store(store.root)
    for digit in "456789":
        fill(other, digit)
    with disk.reserve(200):
        pass
    assert usage_of(store.root).size <= 800
