"""Compiling in a sweep when the compiler misbehaves, or everything is killed."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import onnx
import psutil
import pytest

from tests.machine.timing import eventually, patient
from tests.sweeps.command import INTERRUPTED, Project, Running, model
from tests.verification import packages
from tests.verification.vendor import Vendor

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]

SEED = 20260609
KILLS = 4
FAULTS = ("crash", "eat", "refuse", "escape", "truncate")
COMPILE = ("--target", "ov_cpu", "--compile", "ov_cpu", "--stamp", "s1")


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Vendor:
    return Vendor.compiling(tmp_path_factory.mktemp("vendor") / "venv")


def project_of(folder: Path, vendor: Vendor, models: int) -> Project:
    folder.mkdir()
    made = Project(
        folder,
        {
            "MODELMILL_RUNTIMES": "openvino_ep",
            "MODELMILL_OPENVINO_EP_PYTHON": str(vendor.python),
            "MODELMILL_JOBS": "1",
        },
    )
    made.catalog(*(model(f"tiny/{name}", salt=name) for name in "abcdefgh"[:models]))
    vendor.told.unlink(missing_ok=True)
    return made


def compiled(project: Project) -> dict[str, str]:
    return {cell: str(one.status) for cell, one in project.outcomes("s1").items() if "+" in cell}


def test_a_compiler_that_misbehaves_costs_one_cell_each_time(
    tmp_path: Path, vendor: Vendor
) -> None:
    project = project_of(tmp_path / "project", vendor, len(FAULTS) + 1)
    vendor.told.write_text("\n".join(FAULTS), "utf-8")
    ran = project.run("sweep", "catalog.toml", *COMPILE, "--memory", "900MB")
    assert (ran.code, ran.err) == (1, ""), ran
    found = project.outcomes("s1")
    failed = {str(one.failure): one.message or "" for one in found.values() if one.status.failed}
    assert sorted(compiled(project).values()) == [
        *["build_failed"] * 4, "published", "verify_failed",
    ], ran  # fmt: skip
    assert set(failed) == {"CRASH", "MEMORY", "COMPILE", "VERIFY"}
    messages = [one.message or "" for one in found.values()]
    assert any("this device takes no such model" in text for text in messages)
    assert any("outside the package" in text for text in messages)
    assert project.statuses("s1")["published"] == len(FAULTS) + 2, "no portable cell is harmed"
    assert not list(project.home.glob("work/*/*")), "nothing half-written is left"
    # What was damaged is found out and compiled again; the other failures are over.
    project.ok("store", "clear")
    project.ok("retry", "s1")
    assert project.statuses("s1") == {"published": 2 * (len(FAULTS) + 1)}


def kill(project: Project, running: Running, *, everything: bool) -> None:
    victims = project.processes() if everything else []
    running.signal(signal.SIGKILL)
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()


def survive(project: Project, chance: random.Random, *command: str) -> int:
    """Start, kill, start again, until a run ends by itself; returns the number of kills."""
    kills = 0
    while True:
        with project.start(*command, plain=True) as running:
            lines = chance.randint(1, 4) if kills < KILLS else 1000
            if not all(running.line() for _ in range(lines)):
                ran = running.end()
                assert (ran.code, ran.err) == (0, ""), ran
                return kills
            time.sleep(chance.uniform(0, 0.5))  # the moment of the kill is the test
            kill(project, running, everything=kills % 2 == 0)
            kills += 1
            assert project.alone(), "a child outlived its killed owner"


def test_a_compiling_sweep_that_is_killed_ends_with_the_same_set(
    tmp_path: Path, vendor: Vendor
) -> None:
    reference = project_of(tmp_path / "reference", vendor, 3)
    reference.ok("sweep", "catalog.toml", *COMPILE)
    chance = random.Random(SEED)
    project = project_of(tmp_path / "project", vendor, 3)
    kills = survive(project, chance, "sweep", "catalog.toml", *COMPILE)
    assert project.published() == reference.published()
    assert project.statuses("s1") == {"published": 6}
    # The same for what is compiled from the feed.
    later = project_of(tmp_path / "later", vendor, 3)
    later.ok("sweep", "catalog.toml", "--target", "ov_cpu", "--stamp", "s1")
    kills += survive(later, chance, "compile", "--stamp", "s1", "--profile", "ov_cpu")
    content = {key: tree for key, tree in reference.published().items() if "index" not in key[0]}
    assert content.items() <= later.published().items()
    assert later.statuses("s1") == {"published": 6}
    print(f"{kills} kills")


def test_a_compiler_that_hangs_is_ended_by_the_limit(tmp_path: Path, vendor: Vendor) -> None:
    project = project_of(tmp_path / "project", vendor, 2)
    project.ok("sweep", "catalog.toml", "--target", "ov_cpu", "--stamp", "s1")
    vendor.told.write_text("hang\n", "utf-8")
    # The limit of a stage counts for the compiler alone: everything else is done.
    limit = f"{patient(6):.0f}s"
    ran = project.run("sweep", "catalog.toml", *COMPILE, "--timeout", limit)
    assert ran.code == 1, ran
    assert sorted(compiled(project).values()) == ["build_timeout", "published"]
    project.ok("retry", "s1")
    assert project.statuses("s1") == {"published": 4}


def test_a_compilation_of_files_that_a_scheduler_ends_says_how_it_goes_on(
    tmp_path: Path, vendor: Vendor
) -> None:
    project = project_of(tmp_path / "project", vendor, 1)
    onnx.save(packages.model(), project.folder / "a.onnx")
    vendor.told.write_text("hang", "utf-8")
    words = ("compile", "a.onnx", "--profile", "ov_cpu", "-o", "compiled")
    with project.start(*words, plain=True) as running:
        assert eventually(lambda: not vendor.told.read_text("utf-8"), 60)
        running.signal(signal.SIGTERM)
        ran = running.end()
    assert ran.code == 130
    assert ran.err.endswith(INTERRUPTED)
    assert project.alone()
    assert [path.name for path in project.folder.glob("*.onnx")] == ["a.onnx"]
    assert project.run(*words).code == 0
