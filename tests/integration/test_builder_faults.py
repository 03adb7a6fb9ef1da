"""Cells that misbehave, killed builders, and what they cost the others: nothing."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from machine.waits import Cancelled
from matrix.status import FailureClass
from tests.engines.hosted import make_builder
from tests.machine.timing import patient
from tests.plans.cells import LABELS, make_cell, plan_model
from workers.build.builder import Builder
from workers.errors import BuildFailed
from workers.host.watch import HostLimits, Watching
from workers.store import Store, usage_of

REPOSITORY = Path(__file__).parents[2]
KILLS = 15


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[Builder]:
    made = make_builder(tmp_path, HostLimits(memory=300_000_000, output=2_000_000))
    yield made
    made.close()
    made.store.close()


def left_behind(builder: Builder) -> list[Path]:
    left = builder.store.scratch.folder.rglob("*")
    return [path for path in left if path.is_file()]


def test_one_bad_cell_costs_no_other(builder: Builder, tmp_path: Path) -> None:
    bad = {
        "optimize@qnn_npu": "crash",
        "optimize@qnn_gpu": "fail:UNSUPPORTED",
        "optimize@ov_cpu": "flood",
        "optimize@ov_npu": "memory:2000",
        "optimize@ov_gpu": "kill",
        "optimize@dml_gpu": "raise:odd",
        "optimize@vitisai_npu": "exit:9",
    }
    outcomes: dict[str, tuple[str, str]] = {}
    for label in LABELS:
        # Different levels, so that no cell profits from another one's run.
        cell = make_cell(label=label, optimization=label, act=bad)
        try:
            built = builder.build(cell, Watching(log=tmp_path / f"{label}.log"))
        except BuildFailed as error:
            outcomes[label] = (error.stage, error.failure.value)
        else:
            outcomes[label] = ("", "built")
            built.release()
        assert left_behind(builder) == []
    assert outcomes == {
        "qnn_npu": ("optimize", "CRASH"),
        "qnn_gpu": ("optimize", "UNSUPPORTED"),
        "ov_cpu": ("optimize", "CRASH"),
        "ov_npu": ("optimize", "MEMORY"),
        "ov_gpu": ("optimize", "MEMORY"),
        "mlas_cpu": ("", "built"),
        "dml_gpu": ("optimize", "OPTIMIZE"),
        "vitisai_npu": ("optimize", "CRASH"),
    }


def test_the_time_limit_of_a_cell_is_its_stages(builder: Builder, tmp_path: Path) -> None:
    cell = make_cell(timeout=0.3, act={"export": "hang"})
    with pytest.raises(BuildFailed) as failed:
        builder.build(cell, Watching(log=tmp_path / "cell.log"))
    assert failed.value.failure is FailureClass.TIMEOUT
    assert left_behind(builder) == []


def test_cancel_while_a_stage_runs(builder: Builder, tmp_path: Path) -> None:
    cancel, marker = threading.Event(), tmp_path / "begun"

    def when_begun() -> None:
        while not marker.exists():
            cancel.wait(0.01)
        cancel.set()

    waiter = threading.Thread(target=when_begun)
    waiter.start()
    with pytest.raises(Cancelled):
        builder.build(make_cell(act={"optimize": f"wait:{marker}"}), Watching(cancel=cancel))
    waiter.join(10)
    assert left_behind(builder) == []
    assert [run.reused for run in builder.build(make_cell()).stages] == [True, True, False]


def test_a_plan_that_fails_is_a_failure_of_its_cell(builder: Builder) -> None:
    with pytest.raises(BuildFailed, match="told to fail") as failed:
        builder.build(make_cell(act={"plan": "fail:UNSUPPORTED"}))
    assert failed.value.failure is FailureClass.UNSUPPORTED
    with pytest.raises(BuildFailed) as failed:
        builder.build(make_cell(act={"plan": "crash"}))
    assert failed.value.failure is FailureClass.CRASH
    assert builder.build(make_cell()).tree


SWEEP = """
import sys
from pathlib import Path
from tests.engines.hosted import make_builder
from tests.plans.cells import plan_model

builder = make_builder(Path(sys.argv[1]))
print("ready", flush=True)
for number in range(4):
    for cell in plan_model(f"model/{number}", salt=number, components=["a", "b"]).cells:
        built = builder.build(cell)
        print(cell.id, built.tree, flush=True)
        built.release()
print("done", flush=True)
builder.close()
"""


def sweep(root: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SWEEP, str(root)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_builder_that_is_killed_again_and_again_ends_with_the_same_trees(tmp_path: Path) -> None:
    undisturbed = sweep(tmp_path / "one").communicate(timeout=patient(60))[0]
    assert undisturbed.endswith("done\n")
    chance, root = random.Random(1), tmp_path / "two"
    for _ in range(KILLS):
        process = sweep(root)
        try:
            process.communicate(timeout=chance.random() * 0.2)  # the moment of the kill is the test
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    assert sweep(root).communicate(timeout=patient(60))[0] == undisturbed
    store = Store(root / "store")
    assert usage_of(store.root) == usage_of(Store(tmp_path / "one" / "store").root)
    assert [path.name for path in (root / "work").iterdir()] == ["gate.lock"]
    store.close()


def test_planned_models_share_one_export_across_builders(tmp_path: Path) -> None:
    first, second = make_builder(tmp_path), make_builder(tmp_path)
    model = plan_model(journal=str(tmp_path / "journal"))
    for number, cell in enumerate(model.cells):
        (first, second)[number % 2].build(cell).release()
    ran = (tmp_path / "journal").read_text().splitlines()
    assert sorted(line.split()[0] for line in ran) == ["export", "inputs", "optimize", "quantize"]
    for one in (first, second):
        one.close()
        one.store.close()
