"""The ledger between real processes: budgets hold for the machine, and kill -9 gives back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import psutil
import pytest

from machine.ledger import Ledger
from machine.reservations import SILENT_AFTER, UNDISTURBED, Want, reserved
from machine.waits import WaitRules
from tests.machine.timing import patient
from workers.build.budgets import DiskBudget, MemoryBudget
from workers.errors import BuildFailed
from workers.store import Store

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 100

HOLD = """
import sys
from pathlib import Path
from machine.ledger import Ledger
from workers.build.budgets import MemoryBudget
budget = MemoryBudget(int(sys.argv[2]), ledger=Ledger(Path(sys.argv[1])))
with budget.reserve(int(sys.argv[3]), what="somebody's model"):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
sys.stdin.readline()
"""

BUILD = """
import sys, time
from pathlib import Path
from machine.ledger import Ledger
from tests.machine.timing import patient
from workers.build.budgets import DiskBudget
from workers.store import Action, Store
root, store_root, number = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
store = Store(store_root)
budget = DiskBudget(store, 1000, ledger=Ledger(root), free=lambda _path: 1 << 50)
most = 0
print("ready", flush=True)
sys.stdin.readline()
for turn in range(25):
    with budget.reserve(300):
        most = max(most, budget.reserved)
        out = store.scratch.new_folder()
        (out / "a").write_bytes(f"{number} {turn}".encode().ljust(100))
        key = f"{number}{turn:02}".ljust(64, "0")
        store.ingest(out, Action(key, {}, (), {}, {}, 0, 0, key))
        most = max(most, store.size() + budget.reserved - 300)
print(most, flush=True)
"""


@contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def hear(process: subprocess.Popen[str]) -> str:
    return cast("IO[str]", process.stdout).readline().strip()


def test_what_a_killed_process_reserved_is_free_at_once(tmp_path: Path) -> None:
    budget, got = MemoryBudget(LIMIT, ledger=Ledger(tmp_path)), threading.Event()

    def waiting() -> None:
        with budget.reserve(60):
            got.set()

    with child(HOLD, tmp_path, LIMIT, 60) as holder:
        assert hear(holder) == "held"
        assert budget.reserved == 60
        thread = threading.Thread(target=waiting)
        thread.start()
        assert not got.wait(1.0)
        holder.kill()
        thread.join(patient(30))
        assert got.is_set()
    assert budget.reserved == 0


def test_a_wait_names_the_process_that_has_what_it_waits_for(tmp_path: Path) -> None:
    budget = MemoryBudget(LIMIT, ledger=Ledger(tmp_path))
    with child(HOLD, tmp_path, LIMIT, 60) as holder:
        assert hear(holder) == "held"
        text = rf"held by process {holder.pid} \(somebody's model\), and nothing has changed"
        with pytest.raises(BuildFailed, match=text), budget.reserve(60, WaitRules(0.5)):
            raise AssertionError("both have it")


def test_a_measurement_waits_for_builds_of_other_processes(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with child(HOLD, tmp_path, LIMIT, 1) as builder:
        assert hear(builder) == "held"
        assert ledger.claim([UNDISTURBED]) is None
        print(file=builder.stdin, flush=True)
        assert hear(builder) == "released"
        with ledger.reserve([UNDISTURBED], rules=WaitRules(patient(30.0))):
            assert ledger.claim([UNDISTURBED]) is None


def test_who_waits_and_is_stopped_keeps_nobody_behind_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    want = [Want("memory", 60, LIMIT, "memory")]
    held = ledger.claim(want)
    assert held is not None
    with child(HOLD, tmp_path, LIMIT, 90) as other:
        while True:
            with ledger.everybody() as entries:
                if any(entry.waiting for entry in entries):
                    break
            time.sleep(0.05)
        assert ledger.claim([Want("memory", 1, LIMIT, "memory")]) is None
        psutil.Process(other.pid).suspend()
        began = time.monotonic()
        with ledger.reserve([Want("memory", 1, LIMIT, "memory")], rules=WaitRules(patient(60.0))):
            # Not at once; how long ago its last sign of life was, depends on the machine.
            assert time.monotonic() - began > SILENT_AFTER / 5
        held.release()
        psutil.Process(other.pid).resume()
        assert hear(other) == "held", "back at work, it gets its turn"


def test_processes_that_share_a_store_stay_within_one_disk_budget(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    ledger = Ledger(tmp_path / "ledger")
    with (
        child(BUILD, tmp_path / "ledger", store.root, 1) as one,
        child(BUILD, tmp_path / "ledger", store.root, 2) as two,
        child(BUILD, tmp_path / "ledger", store.root, 3) as three,
        child(BUILD, tmp_path / "ledger", store.root, 4) as four,
    ):
        started = (one, two, three, four)
        assert [hear(process) for process in started] == ["ready"] * 4
        for process in started:
            print(file=process.stdin, flush=True)
        most = [int(hear(process) or -1) for process in started]
    assert max(most) <= 1000
    assert max(most) > 300, "they did work side by side"
    budget = DiskBudget(store, 1000, ledger=ledger, free=lambda _path: 1 << 50)
    with ledger.everybody() as entries:
        assert reserved("disk", entries) == 0
    assert budget.reserved == 0
