"""What a worker removes by itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from flows.fleet.worker import PERIOD, Cleanup
from flows.settings.resolution import resolve
from workers.store import Action, Store

DAY = 86400.0


def cleanup(root: Path, **flags: object) -> Cleanup:
    return Cleanup(resolve({"home": str(root), **flags}, {}, root))


def old(path: Path, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    at = time.time() - days * DAY
    os.utime(path, (at, at))
    return path


def stored(root: Path, key: str, days: float) -> None:
    store = Store(root / "store")
    out = store.scratch.new_folder()
    (out / "file").write_bytes(key.encode())
    store.ingest(out, Action(key * 64, {}, (), {}, {}, 1.0, 1, "x"))
    old(root / "store" / "actions" / (key * 2) / f"{key * 64}.json", days)
    store.close()


def keys(root: Path) -> set[str]:
    return {path.name[0] for path in (root / "store" / "actions").rglob("*.json")}


def test_what_is_older_than_the_retention_goes(tmp_path: Path) -> None:
    for key, days in (("a", 40), ("b", 20)):
        stored(tmp_path, key, days)
    gone = old(tmp_path / "logs" / "s1" / "cell.log", 31)
    fresh = old(tmp_path / "logs" / "s2" / "cell.log", 29)
    kept = old(tmp_path / "kept" / "s1" / "conflict.log", 400)
    said = cleanup(tmp_path).if_due()
    assert said == "removed 1 stage result (1 B) and 1 log"
    assert keys(tmp_path) == {"b"}
    assert not gone.exists()
    assert fresh.exists()
    assert kept.exists()


def test_the_disk_budget_holds_too(tmp_path: Path) -> None:
    for key, days in (("a", 2), ("b", 1)):
        stored(tmp_path, key, days)
    cleanup(tmp_path, disk_budget=1).if_due()
    assert keys(tmp_path) == {"b"}


def test_it_is_done_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = cleanup(tmp_path, retention=DAY)
    assert work.if_due() is None  # a home that is empty
    stored(tmp_path, "a", 2)
    assert work.if_due() is None
    assert keys(tmp_path) == {"a"}
    later = time.monotonic() + PERIOD
    monkeypatch.setattr("flows.fleet.worker.time.monotonic", lambda: later)
    assert work.if_due() == "removed 1 stage result (1 B)"


def test_a_folder_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    mine = old(tmp_path / "store" / "actions" / "aa" / ("a" * 64 + ".json"), 99)
    assert cleanup(tmp_path).if_due() is None
    assert mine.exists()
