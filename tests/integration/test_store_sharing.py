"""Two processes on one store: no stage runs twice, and a dead holder's lock is free."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from machine.waits import Cancelled, WaitRules
from tests.machine.timing import patient
from workers.store import Store

REPOSITORY = Path(__file__).parents[2]
KEY = "a" * 64

SWEEP = """
import sys
from pathlib import Path
from tests.plans.cells import plan_model
from tests.fakes.engine import fake_spec
from workers.build.builder import Builder
from workers.host.client import EngineHost
from workers.store import Store

root = Path(sys.argv[1])
builder = Builder(
    Store(root / "store"), EngineHost(fake_spec(), log_dir=root / "logs"), root / "work"
)
builder.host.tools()
print("ready", flush=True)
sys.stdin.readline()
for number in range(6):
    model = plan_model(f"model/{number}", salt=number, journal=str(root / "journal"),
                       act={"export": "sleep:0.02"})
    for cell in model.cells:
        built = builder.build(cell)
        print(cell.id, built.tree, flush=True)
        built.release()
builder.close()
"""

HOLDER = """
import sys
from pathlib import Path
from workers.store import Store

store = Store(Path(sys.argv[1]))
with store.lock(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def start(script: str, *args: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *args],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() in {"ready", "held"}
    return process


def test_two_sweeps_on_one_store_run_every_stage_once(tmp_path: Path) -> None:
    sweeps = [start(SWEEP, str(tmp_path)) for _ in range(2)]
    for sweep in sweeps:
        assert sweep.stdin is not None
        sweep.stdin.write("go\n")
        sweep.stdin.flush()
    one, two = (sweep.communicate(timeout=patient(120))[0] for sweep in sweeps)
    assert [sweep.returncode for sweep in sweeps] == [0, 0]
    assert one == two
    ran = (tmp_path / "journal").read_text().splitlines()
    assert len(ran) == 6 * 4
    assert sorted(set(ran)) == sorted(ran)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start(HOLDER, str(tmp_path / "store"), KEY)
    yield process
    process.kill()
    process.communicate()


def test_the_lock_of_a_dead_process_is_free(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    store = Store(tmp_path / "store")
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled), store.lock(KEY, WaitRules(cancel=cancelled)):
        pass
    with store.lock("b" * 64, WaitRules(cancel=cancelled)):
        pass
    holder.kill()
    holder.communicate()
    with store.lock(KEY):
        pass


def test_keys_that_share_a_lock_file_wait_for_each_other(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    store = Store(tmp_path / "store")
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled), store.lock(KEY[:3] + "b" * 61, WaitRules(cancel=cancelled)):
        pass
    with store.lock("b" + KEY[1:], WaitRules(cancel=cancelled)):
        pass


def test_working_folders_of_the_living_are_spared(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    store = Store(tmp_path / "store")
    store.gc(0)
    folders = [path for path in (tmp_path / "store" / "tmp").iterdir() if path.is_dir()]
    assert len(folders) == 2
    holder.kill()
    holder.communicate()
    store.gc(0)
    assert [path for path in folders if path.exists()] == [store.scratch.folder]


def test_threads_of_one_process_exclude_each_other_too(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(10):
            with store.lock(KEY):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(60))
    assert max(most) == 1
    assert len(most) == 40
